"""The status of every tick: what it says, with whatever clocks, and what the command makes of it."""

import json
import urllib.request

import pyarrow.dataset as ds
import pytest
from tests.spark.jobs.sync.tables.test_history import Tasks, run_for
from tests.spark.jobs.sync.test_ticks import SETTINGS, Master
from typer.testing import CliRunner

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.main import app
from twinlog.cli.pipeline.status import duration, problems_of, size, state_text
from twinlog.client.sync import Producer
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.progress import quiet
from twinlog.spark.jobs.sync.sync_metrics import serve_metrics, sync_metrics
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.sync_run import SyncRun
from twinlog.spark.jobs.sync.tables.status_log import StatusLog, state_of
from twinlog.spark.jobs.sync.tick_work import BrokerReport
from twinlog.spark.jobs.sync_status import OBSERVED_MAX, age_seconds, load_status, status_of
from twinlog.wire.bodies import DataVersion

NOW = 1_700_000_000_000
DAY = 86_400_000


def report(end, master_end, error="", replica="r1"):
    return BrokerReport("a", "h:1", replica, begin=0, end=end, master_end=master_end, error=error)


def after(*ticks, every=10_000, took=1_000):
    """The state after these reports, a tick each ten seconds; None is a master that does not answer."""
    state = None
    for number, one in enumerate(ticks):
        began = NOW + number * every
        found = BrokerReport("a", "h:1", error="cannot connect to h:1") if one is None else report(*one)
        state = state_of(state, found, began, began + took)
    return state


def test_seconds_count_since_the_replica_held_everything_its_master_had():
    assert after((100, 100)).lag_seconds == 0
    behind = after((100, 100), (150, 200), (180, 300))
    assert (behind.lag_bytes, behind.in_step_ms, behind.lag_seconds) == (120, NOW, 21.0)
    nearer = after((100, 100), (150, 200), (180, 300), (250, 400))
    assert (nearer.in_step_ms, nearer.lag_seconds) == (NOW + 10_000, 21.0), "it has all of the second tick by now"
    assert after((100, 100), (150, 200), (180, 300), (400, 400)).lag_seconds == 0


def test_before_the_first_copy_is_complete_no_seconds_are_made_up():
    state = after((10, 100), (50, 100))
    assert state.lag_seconds is None and state.lag_bytes == 50 and state_text(state) == "first copy 50 %"
    assert after((10, 100), (100, 300)).in_step_ms == NOW, "what was there at the first tick is there now"


def test_a_broker_that_is_away_for_a_day_is_a_day_old_and_of_unknown_lag():
    state = after((100, 100), *[None] * 8640)
    assert (state.lag_bytes, state.lag_seconds, state.failed_ticks) == (None, 86401.0, 8640)
    assert (state.replica_end, state.master_end, state.failing_since_ms) == (100, 100, NOW + 10_000)
    assert after((100, 100), None, (100, 900)).failed_ticks == 0


def test_a_clock_that_is_set_back_or_ahead_never_makes_a_negative_lag():
    state = state_of(None, report(100, 100), NOW, NOW)
    state = state_of(state, report(100, 200), NOW - DAY, NOW - DAY)
    assert state.lag_seconds == 0.0 and age_seconds(state, NOW - DAY) == 0.0
    caught_up = state_of(state, report(200, 200), NOW - DAY + 10_000, NOW - DAY + 10_000)
    assert (caught_up.lag_seconds, caught_up.in_step_ms) == (0.0, NOW - DAY + 10_000), "the new clock counts from here"


def test_a_replica_that_is_begun_anew_and_a_master_that_lost_its_tail_start_afresh():
    anew = state_of(after((100, 100)), report(5, 100, replica="r2"), NOW + 10_000, NOW + 11_000)
    assert anew.in_step_ms is None and anew.lag_seconds is None
    cut = after((100, 200), (100, 150), (150, 150))
    assert cut.lag_seconds == 0 and cut.observed == []


def test_a_replica_that_is_behind_for_long_keeps_few_observations():
    state = after(*[(10 + n, 1000 + 10 * n) for n in range(1000)])
    assert len(state.observed) <= OBSERVED_MAX
    assert state.observed[-1] == (NOW + 9_990_000, 10_990)


# -- with a broker ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    home = tmp_path_factory.mktemp("status")
    with EmbeddedBroker(home / "master", SETTINGS) as broker, Producer(broker.namesrv_address, "PG") as producer:
        yield Master(home, broker, producer)


def ticks(to):
    files = [str(one) for one in (to / "_status" / "ticks").glob("*.parquet")]
    return sorted(ds.dataset(files).to_table().to_pylist(), key=lambda row: row["tick"])


def shown(*words):
    return CliRunner().invoke(app, ["pipeline", "status", *map(str, words)])


def test_each_tick_is_a_row_and_the_command_shows_the_last(master):
    run = run_for(master)
    for number in range(3):
        master.send(2)
        run.tick(Tasks(), number)
    found = ticks(master.to)
    assert [row["tick"] for row in found] == [1, 2, 3]
    assert all(row["replicaEnd"] == row["masterEnd"] > 0 and row["lagBytes"] == 0 for row in found)
    assert dict(found[-1]["versions"])["topics"]["counter"] >= 1 and found[-1]["error"] is None
    told = shown(master.to, "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    (broker,) = document["brokers"]
    assert (document["tick"], document["running"], document["problems"]) == (3, True, [])
    assert (broker["state"], broker["lagBytes"], broker["lagSeconds"]) == ("in step", 0, 0.0)
    table = shown(master.to)
    assert "in step" in table.stdout and max(map(len, table.stdout.splitlines()[1:])) <= 80
    again = run_for(master)  # another run counts on
    again.tick(Tasks(), 0)
    assert load_status(master.to).tick == 4
    again.status_log.end()
    assert "ended" in shown(master.to).stdout and shown(master.to).exit_code == 0


def test_a_failure_is_in_the_status_with_its_reason_and_the_exit_status(master, tmp_path):
    job = SyncJob(to=str(tmp_path), addresses=("127.0.0.1:1", master.target.address))
    (tmp_path / "broker-a").write_text("a file where the directory should be")
    run = SyncRun(job, 1, quiet)
    run.discover()
    run.tick(Tasks(), 0)
    told = shown(tmp_path)
    assert told.exit_code == 1
    assert "127.0.0.1:1: failed for" in told.stdout and "cannot connect" in told.stdout
    assert "broker-a: failed for" in told.stdout and str(tmp_path / "broker-a") in told.stdout
    (tmp_path / "broker-a").unlink()
    run.tick(Tasks(), 1)
    found = {row["broker"]: row["failedTicks"] for row in ticks(tmp_path) if row["tick"] == 2}
    assert found == {"127.0.0.1:1": 2, "broker-a": 0}


def test_a_broker_that_is_no_longer_registered_stays_in_the_status_until_its_replica_is_moved_away(tmp_path):
    (tmp_path / "a" / "twinlog-sync").mkdir(parents=True)
    clock = iter(range(NOW, NOW + 10**9, 1000))
    log = StatusLog(SyncJob(to=str(tmp_path)), lambda: next(clock))
    log.add(NOW, [report(100, 100)], {})
    log.keep_only(["b"])
    log.add(NOW, [], {})
    (state,) = load_status(tmp_path).brokers
    assert "no master of this name is registered" in state.error and state.replica_end == 100
    (tmp_path / "a").rename(tmp_path / ".a")
    log.keep_only(["b"])
    log.add(NOW, [], {})
    assert load_status(tmp_path).brokers == []


def test_a_run_that_was_killed_or_has_another_clock_is_named(tmp_path):
    log = StatusLog(SyncJob(to=str(tmp_path)), lambda: NOW)
    log.add(NOW, [report(50, 100)], {})
    assert problems_of(log.status, NOW + 20_000) == []
    (killed,) = problems_of(log.status, NOW + DAY)
    assert killed.startswith("no tick for 24 h: the synchronisation on ") and "was killed or hangs" in killed
    (ahead,) = problems_of(log.status, NOW - DAY)
    assert ahead == "the last tick is 24 h ahead of this machine's clock"
    assert problems_of(log.status, NOW, lag_max_s=60) == ["a: its first copy is not complete"]
    log.add(NOW, [report(100, 100)], {})
    log.add(NOW, [report(100, 200)], {})
    assert problems_of(log.status, NOW + 29_000, lag_max_s=20) == ["a: 29 s old, more than 20 s"]
    log.add(NOW, [report(200, 200)], {})
    assert problems_of(log.status, NOW + 29_000, lag_max_s=20) == [], "it is in step while ticks come"
    log.end()
    assert problems_of(log.status, NOW + DAY) == []
    assert problems_of(log.status, NOW + DAY, lag_max_s=20) == ["a: 24 h old, more than 20 s"], "no ticks come any more"
    log.end("the disk is full")
    assert problems_of(log.status, NOW) == ["the synchronisation ended: the disk is full"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("", "is not written by a synchronisation: give the directory of `twinlog pipeline sync --to`"),
        ("broker-a/twinlog-sync/", "has replicas and no status yet"),
        ("twinlog-sync/", "is one replica: give the directory above it"),
        ("_status/latest.json", "is not a status"),
    ],
)
def test_a_directory_without_a_status_is_named_with_what_to_do(tmp_path, made, told):
    place = tmp_path / made
    if made.endswith("/"):
        place.mkdir(parents=True)
    elif made:
        place.parent.mkdir()
        place.write_text("{")
    found = shown(tmp_path)
    assert found.exit_code == 2 and told in found.stderr and str(tmp_path) in found.stderr
    assert "Traceback" not in found.stderr


def test_other_mistakes_are_named_too(tmp_path):
    assert "does not exist" in shown(tmp_path / "nowhere").stderr
    (tmp_path / "file").write_text("")
    assert "is a file" in shown(tmp_path / "file").stderr
    assert "--lag-max 'soon' is not a time" in shown(tmp_path, "--lag-max", "soon").stderr
    with pytest.raises(BadOption):
        status_of(tmp_path)


def test_a_status_that_cannot_be_written_does_not_stop_the_synchronisation(tmp_path, caplog):
    (tmp_path / "_status").write_text("a file where the directory should be")
    log = StatusLog(SyncJob(to=str(tmp_path)), lambda: NOW)
    log.add(NOW, [report(100, 100)], {})
    assert "the status cannot be written" in caplog.text and log.status.tick == 1


def test_prometheus_reads_the_last_tick(tmp_path):
    log = StatusLog(SyncJob(to=str(tmp_path)), lambda: NOW)
    first = report(80, 100)
    first.versions = {"topics": DataVersion(0, NOW, 7)}
    log.add(NOW - 3000, [first], {})
    with serve_metrics(log, "127.0.0.1", 0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        told = f"--metrics-port: 127.0.0.1:{port} cannot be opened .*choose another port"
        with pytest.raises(BadOption, match=told), serve_metrics(log, "127.0.0.1", port):
            pass
    assert 'twinlog_sync_lag_bytes{broker="a"} 20.0' in text
    assert 'twinlog_sync_metadata_version{broker="a",kind="topics"} 7.0' in text
    assert "twinlog_sync_tick_seconds 3.0" in text and "twinlog_sync_ticks_total 1.0" in text
    assert "twinlog_sync_lag_seconds{" not in text, "unknown before the first copy is complete"
    log.add(NOW, [report(100, 100)], {})
    assert sync_metrics(lambda: log.status).samples()["twinlog_sync_lag_seconds"] == {("a",): 0.0}


def test_numbers_are_short():
    found = [duration(one) for one in (0, 0.25, 9.96, 12.3, 119, 3600, 86400, 259200)]
    assert found == ["0 s", "0.2 s", "10.0 s", "12 s", "119 s", "60 m", "24 h", "3 d"]
    assert [size(one) for one in (0, 999, 1500, 2.5e9)] == ["0 B", "999 B", "1.5 kB", "2.5 GB"]
