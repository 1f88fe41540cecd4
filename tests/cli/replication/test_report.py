from tests.cli.replication.groups import groups

from twinlog.cli.replication.report import MIB, CatchUp, Progress, report_of
from twinlog.observe.cluster.broker_groups import Group, Member


def test_progress_has_a_rate_and_a_time_left_while_a_replica_catches_up():
    catch_up = CatchUp()
    assert catch_up.measure(groups(20 * MIB, 80 * MIB), 0.0) == [Progress("b/1", 0, 80 * MIB, 0.0, None)]
    (progress,) = catch_up.measure(groups(60 * MIB, 40 * MIB), 2.0)
    assert progress == Progress("b/1", 40 * MIB, 80 * MIB, 20.0 * MIB, 2.0)
    assert str(progress) == "50 % of 80.0 MiB, 20.0 MiB/s, 2 s left"
    assert catch_up.measure(groups(100 * MIB, 0), 3.0) == []
    assert "the lag does not shrink" in str(Progress("b/1", 0, MIB, 0.0, None))


def test_brokers_that_do_not_answer_are_shown_as_such():
    silent = [Group("C", "b", [Member(0, "m", error="refused"), Member(1, "r", error="refused too")])]
    report = report_of(silent)
    assert "does not answer: refused" in report.tables[0].title
    assert report.tables[0].rows[0][2] == "no answer" and report.tables[0].notes == ["replica 1: refused too"]
    assert report_of([]).lines == ["no brokers are registered"]


def test_the_reason_stands_below_the_table():
    replica = Member(1, "r", "twinlog", {"following": {"state": "refused", "reason": "it is ahead"}}, log_end=5)
    (table,) = report_of([Group("C", "b", [Member(0, "m", "twinlog"), replica])]).tables
    assert table.notes == ["replica 1: it is ahead"] and "Reason" not in table.columns


def kind(synced_ms, error=""):
    version = {"counter": 3, "timestamp": 1_700_000_000_000}
    row = {"syncedMs": synced_ms, "changes": 1, "failures": 0, "bytesReceived": 9, "version": version}
    return {**row, "error": error}


def test_metadata_is_one_line_unless_it_is_asked_for():
    metadata = {"topics": kind(7_000), "offsets": kind(9_000, "the master is away")}
    replica = Member(1, "r", "twinlog", {"metadata": metadata, "nowMs": 10_000}, log_end=5)
    groups = [Group("C", "b", [Member(0, "m", "twinlog"), replica])]
    (table,) = report_of(groups).tables
    assert table.notes == [
        "replica 1: metadata: 2 kinds, synchronised 3.0 s ago; --metadata shows them",
        "replica 1: metadata: offsets: the master is away",
    ]
    replicas, shown = report_of(groups, with_metadata=True).tables
    assert replicas.notes == [] and shown.notes == ["offsets: the master is away"]
    assert [row[0] for row in shown.rows] == ["topics", "offsets"]
    metadata["groups"] = kind(0)
    assert "metadata: no groups so far" in report_of(groups).tables[0].notes[0]
