"""Audits as Spark runs them: many pairs at once, ten planted differences, the table, and the command."""

import json
import shutil

import pytest
from tests.spark.jobs.audit.audit_stores import BODY_AT, append_more, edit_json, make_master, record, with_body
from tests.spark.jobs.commands import run
from tests.store.store_at import SEGMENT, write_log

from twinlog.cli.pipeline.audit import line_of
from twinlog.spark.jobs.audit.job import DIFFERENT, EQUAL, NOT_COMPARABLE, AuditJob, audit
from twinlog.spark.jobs.audit.pairs import pairs_of


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A master, an equal twin, one with ten planted differences, and one that is behind."""
    home = tmp_path_factory.mktemp("pairs")
    places = make_master(home / "behind")
    shutil.copytree(home / "behind", home / "master")
    append_more(home / "master", 2)
    for name in ("twin", "spoiled"):
        shutil.copytree(home / "master", home / name)
    spoiled = home / "spoiled"
    write_log(spoiled, places[5] + BODY_AT, b"\xff")
    write_log(spoiled, places[20] + record(spoiled, places[20]).index(b"key-20"), b"K")
    write_log(spoiled, places[35], b"\x00\x00\x00\x7f")
    write_log(spoiled, places[50], with_body(record(spoiled, places[50]), b"BODY 50"))
    (spoiled / "store" / "commitlog" / f"{SEGMENT:020d}").unlink()
    edit_json(spoiled, "topics.json", lambda d: d["topicConfigTable"]["TopicA"].update(readQueueNums=9))
    edit_json(spoiled, "subscriptionGroup.json", lambda d: d["subscriptionGroupTable"].pop("GroupA"))
    edit_json(spoiled, "consumerOffset.json", lambda d: d["offsetTable"]["TopicA@GroupA"].update({"0": 7}))
    edit_json(spoiled, "delayOffset.json", lambda d: d["offsetTable"].update({"3": 1}))
    tail = append_more(shutil.copytree(home / "twin", home / "ahead"), 1, start=900)
    last_file = f"store/commitlog/{tail[0] - tail[0] % SEGMENT:020d}"
    shutil.copyfile(home / "ahead" / last_file, spoiled / last_file)  # the tenth: a record only the replica has
    return home, places, tail


def stores(home, *names):
    return [str(home / name / "store") for name in names]


def test_three_pairs_at_once_are_equal_different_and_behind(spark, home, tmp_path):
    home, places, tail = home
    pairs = pairs_of(stores(home, "master", "twin", "master", "spoiled", "master", "behind"))
    table = str(tmp_path / "audits")
    summary = audit(spark, AuditJob(pairs=pairs, to=table, range_bytes=5000))
    twin, spoiled, behind = summary.pairs
    assert (twin.status, twin.counts) == (EQUAL, {})
    assert twin.compared_bytes == behind.compared_bytes + behind.lag_bytes > 3 * SEGMENT
    assert (behind.status, behind.counts) == (EQUAL, {"lag": 1})
    assert summary.status == spoiled.status == DIFFERENT

    told = {(one.kind, one.physical_offset) for one in summary.findings if one.item not in _METADATA}
    in_file = {("missing", place) for place in places if SEGMENT <= place < 2 * SEGMENT}
    assert told - in_file - {("lag", behind_end(summary))} == {
        ("corrupt", places[5]),
        ("different", places[20]),
        ("corrupt", places[35]),
        ("different", places[50]),
        ("segment", SEGMENT),
        ("extra", tail[0]),
    }
    assert in_file <= told
    metadata = {(one.item, one.key, one.field) for one in summary.findings if one.kind == "metadata"}
    assert metadata == {
        ("topics", "TopicA", "readQueueNums"),
        ("groups", "GroupA", "*"),
        ("offsets", "TopicA@GroupA", "0"),
        ("delayOffsets", "3", "offset"),
    }

    again = audit(spark, AuditJob(pairs=pairs[:1], to=table))
    rows = spark.read.parquet(table)
    results = {(row["auditId"], row["replica"]): row["what"] for row in rows.filter("kind = 'result'").collect()}
    assert results == {
        (summary.audit_id, str(pairs[0][1])): "equal",
        (summary.audit_id, str(pairs[1][1])): "different",
        (summary.audit_id, str(pairs[2][1])): "equal",
        (again.audit_id, str(pairs[0][1])): "equal",
    }
    kept = rows.filter("kind not in ('result', 'lag')").collect()
    assert len(kept) == len(in_file) + 6 + 4
    assert all(line_of(one) for one in summary.findings)


_METADATA = ("topics", "groups", "offsets", "delayOffsets", "dataVersion")


def behind_end(summary):
    return next(one.physical_offset for one in summary.findings if one.kind == "lag")


def test_a_pair_that_cannot_be_compared_leaves_the_others_compared(spark, home, tmp_path):
    home, _, _ = home
    pairs = pairs_of([*stores(home, "master", "twin"), *stores(home, "master"), str(tmp_path / "nowhere")])
    summary = audit(spark, AuditJob(pairs=pairs))
    assert [one.status for one in summary.pairs] == [EQUAL, NOT_COMPARABLE]
    assert summary.status == NOT_COMPARABLE
    assert "nowhere" in summary.findings[0].what


def test_the_exit_status_of_the_command_shows_the_result(spark, home, monkeypatch, capfd):
    home, _, _ = home
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is shared with other tests
    equal = run(capfd, "audit", *stores(home, "master", "twin"), "--local-below", "0")
    assert (equal.exit_code, "equal" in equal.stdout) == (0, True), equal.stderr
    assert "without Spark" not in equal.stderr
    behind = stores(home, "master", "behind")
    strict = run(capfd, "audit", *behind, "--strict", "--json")
    assert strict.exit_code == 1
    document = json.loads(strict.stdout.splitlines()[-1])
    assert document["pairs"][0]["result"] == "different"
    assert [one["kind"] for one in document["findings"]] == ["lag", "missing", "missing"]
    assert run(capfd, "audit", *stores(home, "master"), "/nowhere/store").exit_code == 2
    assert run(capfd, "audit", *stores(home, "master")).exit_code == 2
