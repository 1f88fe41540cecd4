"""A store that refuses, slows down, forgets or loses answers: a clear error, and the next run goes on."""

import pytest
from tests.spark.lake.archives import compact, live, plain, run
from tests.spark.lake.faulty_proxy import Answer, faulty_proxy

from twinlog.spark.jobs.archive.lakes import live_files, runs
from twinlog.spark.jobs.archive.write import CannotWriteArchive
from twinlog.spark.lake.errors import LakeError


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(runs, "_SILENT_S", 0.0)
    monkeypatch.setattr(live_files, "_PAUSE_S", 0.01)


@pytest.fixture
def proxy(s3):
    with faulty_proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def lakes(s3, proxy):
    """The same archive, through the proxy and directly."""
    direct = s3.lake("archive")
    settings = {"fs.s3a.endpoint": proxy.endpoint, "fs.s3a.attempts.maximum": "2", "fs.s3a.connection.timeout": "5s"}
    return s3.lake("archive", bucket=direct.root.authority, **settings), direct


REFUSALS = [
    (403, "AccessDenied", "check the policy of the bucket"),
    (403, "SignatureDoesNotMatch", r"check fs\.s3a\.secret\.key"),
    (400, "ExpiredToken", "the credentials have expired; give fresh ones and run again"),
    (403, "RequestTimeTooSkewed", "the clocks of this machine and of the store differ"),
    (503, "SlowDown", "the store limits the rate of requests"),
]


def test_a_store_that_refuses_is_quoted_with_what_to_do(lakes, proxy):
    through, _ = lakes
    for status, code, hint in REFUSALS:
        proxy.fault = lambda request, status=status, code=code: Answer(status, code)
        with pytest.raises(LakeError, match=rf"s3a://.*/archive/x: cannot be read \({code}: injected\); {hint}"):
            through.read("x")


def test_credentials_that_expire_in_the_middle_end_the_run_and_the_next_one_goes_on(lakes, proxy):
    through, direct = lakes
    run(direct, 10)

    def refuse(request):  # everything, once the second batch of the run is recorded
        records = [one for one in proxy.seen if one.method == "PUT" and "_commits" in one.path]
        late = len(records) > 2 and request.method != "HEAD" and request != records[2]
        return Answer(400, "ExpiredToken") if late else None

    proxy.fault = refuse
    with pytest.raises(LakeError, match=rf"s3a://{direct.root.authority}/archive.*the credentials have expired"):
        run(through, 50)
    assert live(direct) == list(range(30))
    assert plain(direct) == list(range(20))
    run(direct, 40)
    assert live(direct) == plain(direct) == list(range(40))


def test_a_task_that_may_not_write_names_its_place(lakes, proxy):
    through, direct = lakes
    run(direct, 10)
    proxy.fault = lambda request: (
        Answer(403, "AccessDenied") if "_staging" in request.path and request.method in ("PUT", "POST") else None
    )
    with pytest.raises(CannotWriteArchive, match=r"archive/_staging/.* cannot be written \(.*ACCESS_DENIED"):
        run(through, 30)
    assert live(direct) == plain(direct) == list(range(10))


def test_a_store_that_does_not_answer_in_time_is_named(s3, lakes, proxy):
    _, direct = lakes
    impatient = {"fs.s3a.endpoint": proxy.endpoint, "fs.s3a.attempts.maximum": "1", "fs.s3a.connection.timeout": "1s"}
    proxy.fault = lambda request: Answer(delay_s=2.0)
    with pytest.raises(LakeError, match=rf"timeout.*check that {proxy.endpoint} answers"):
        run(s3.lake("archive", bucket=direct.root.authority, **impatient), 30)
    run(direct, 10)
    assert live(direct) == list(range(10))


def test_an_answer_that_is_lost_is_not_a_second_writer(lakes, proxy):
    through, direct = lakes
    lost = []

    def lose_once(request):
        if request.method == "PUT" and "_commits" in request.path and request.path not in lost:
            lost.append(request.path)
            return Answer(lose=True)
        return None

    proxy.fault = lose_once
    run(through, 20)
    assert len(lost) >= 4
    assert live(direct) == plain(direct) == list(range(20))


def test_half_a_listing_is_found_out(lakes, proxy, monkeypatch):
    monkeypatch.setattr("twinlog.spark.jobs.archive.lakes.live_files._PAUSE_S", 0.01)
    through, direct = lakes
    run(direct, 20)
    proxy.fault = lambda request: Answer(forget="b000000000001") if request.is_listing else None
    with pytest.raises(LakeError, match=r"has 2 files of \d+ bytes, the archive's records count 4"):
        live(through)
    with pytest.raises(LakeError, match="half a listing"):
        compact(through)
    proxy.fault = lambda request: Answer(cut=True) if request.is_listing else None
    with pytest.raises(LakeError, match=r"s3a://.* cannot be listed"):
        run(through, 30)
    assert live(direct) == plain(direct) == list(range(20))
    run(direct, 30)
    assert live(direct) == plain(direct) == list(range(30))


def test_a_server_without_conditional_puts_is_refused(s3):
    lake = s3.lake("archive")
    lake.write("header", b"{}")
    with faulty_proxy(s3.endpoint) as proxy:
        through = s3.lake("archive", bucket=lake.root.authority, **{"fs.s3a.endpoint": proxy.endpoint})
        proxy.fault = lambda request: Answer(200, "") if request.method == "PUT" else None
        with pytest.raises(LakeError, match="ignores If-None-Match, so two writers cannot be kept apart"):
            through.check_exclusive("header")


def test_wrong_keys_buckets_and_addresses_are_named(s3):
    with pytest.raises(LakeError, match=r"s3a://no-such-bucket/a.*NoSuchBucket.*create the bucket"):
        s3.lake("a", bucket="no-such-bucket").write("x", b"")
    nowhere = {"fs.s3a.endpoint": "http://127.0.0.1:1", "fs.s3a.attempts.maximum": "1"}
    with pytest.raises(LakeError, match=r"Could not connect.*check that http://127\.0\.0\.1:1 answers"):
        s3.lake("a", bucket="b", **nowhere).read("x")
    with pytest.raises(LakeError, match=r"check fs\.s3a\.endpoint"):
        s3.lake("a", bucket="b", **{"fs.s3a.endpoint": "http://::"}).read("x")
