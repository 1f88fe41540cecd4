from tests.cli.replication.groups import groups

from twinlog.cli.replication.facts import Group, Member
from twinlog.cli.replication.report import MIB, CatchUp, Progress, report_of


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
    assert report.tables[0].rows[0][3] == "no answer"
    assert report_of([]).lines == ["no brokers are registered"]


def test_a_narrow_terminal_gets_fewer_columns_and_reasons_in_lines():
    replica = Member(1, "r", "twinlog", {"following": {"state": "refused", "reason": "it is ahead"}}, log_end=5)
    report = report_of([Group("C", "b", [Member(0, "m", "twinlog"), replica])], narrow=True)
    assert report.tables[0].columns == ["BID", "Addr", "State", "InSync", "Lag", "Seconds", "LogEnd"]
    assert report.lines == ["b: replica 1: it is ahead"]
