"""The Replication page's markup: unknown is said, differences are rows, a switch is explained."""

from tests.observe.cluster.test_cluster_view import NOW, member, twinlog_replica, view_of

from twinlog.dashboard.pages.replication import chosen_group
from twinlog.dashboard.pages.replication_parts import differences_markup, history_markup, pair_markup, versions_markup
from twinlog.failover.records import History
from twinlog.observe.cluster.broker_groups import LagFacts, Member
from twinlog.observe.replicas.metadata_rows import BrokerTables, changes, differences

VERSION = {"topics": {"counter": "3", "timestamp": "1700000000000", "stateVersion": "0"}}


def tables(address, topics, **more):
    snapshot = {"topics": topics, "groups": {}, "offsets": {}, "delayOffsets": {}, "dataVersion": VERSION}
    return BrokerTables(address, NOW, snapshot, **more)


def test_every_number_of_a_link_has_its_unit_and_unknown_is_said():
    lag = LagFacts(2048, 12, False, 1500, True, acked=900)
    group = view_of(member(0), twinlog_replica(), lags={1: lag}).groups[0]
    drawn = pair_markup(group, {"b1:1": 3 * 1024.0})
    for text in ("2.0 KiB behind", "~12 messages, 1.5 s", "transfer 3.0 KiB/s", "900", "In sync</dt><dd>yes"):
        assert text in drawn, text
    silent = pair_markup(view_of(member(0), Member(1, "b1:1", error="x")).groups[0], {})
    assert "lag unknown" in silent and "transfer unknown" in silent and "0 B behind" not in silent
    assert "No master" in pair_markup(view_of(member(1)).groups[0], {})


def test_master_and_replica_are_compared_row_by_row():
    ours = tables("m:1", {"Orders": {"perm": "6", "readQueueNums": "8"}, "New": {"perm": "6"}})
    theirs = tables("r:1", {"Orders": {"perm": "6", "readQueueNums": "4"}}, missing=("delayOffsets",))
    found = differences(ours, theirs)
    assert [(one.key, one.field, one.left, one.right) for one in found.rows] == [
        ("New", "*", '{"perm":"6"}', None),
        ("Orders", "readQueueNums", "8", "4"),
    ]
    text = differences_markup(found)
    assert "2 rows differ" in text and "missing" in text and "readQueueNums" in text
    group = view_of(member(0), twinlog_replica(), lags={1: LagFacts(0, 0, True, 0, True)}).groups[0]
    versions = versions_markup(found, group.replicas[0], NOW)
    assert "2 differ" in versions and "not given" in versions and "1 rows" in versions
    few = differences(ours, theirs, shown_max=1)
    assert few.count == few.count_of("topics") == 2, "what is not shown still differs"
    assert [one.left for one in changes(theirs, ours) if one.field == "readQueueNums"] == ["4"]


def test_the_history_of_etcd_says_what_was_lost():
    row = History(epoch=4, member="x", address="b1:1", start=500, reason="the lease ended", at_ms=NOW, lost=(450, 500))
    text = history_markup([], [row], "from etcd")
    assert "bytes 450 to 500" in text and "the lease ended" in text


def test_the_worst_group_is_shown_first_unless_one_is_named():
    view = view_of(member(0), Member(1, "b1:1", error="x"))
    assert chosen_group(view, None) is view.groups[0] and chosen_group(view, "C/b") is view.groups[0]
