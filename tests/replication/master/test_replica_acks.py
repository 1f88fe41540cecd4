"""Which acknowledged ends count, and which replicas are in sync."""

import pytest

from twinlog.replication.master.replica_acks import LinkAck, ReplicaAcks, replicas_needed


def _table(*rows: LinkAck, registered: int | None = None) -> ReplicaAcks:
    table = ReplicaAcks()
    table.registered_replicas = registered
    for link, row in enumerate(rows):
        table.join(link, row)
    return table


def _ack(acked: int, identity: str | None = None, **more) -> LinkAck:
    return LinkAck("peer", identity, acked=acked, usable=more.pop("usable", True), **more)


def test_a_known_replica_counts_once_however_often_it_connects():
    table = _table(_ack(50, "a"), _ack(70, "a"), _ack(60, "b"))
    assert table.acks() == [70, 60]
    assert (table.safe_end(1, 100), table.safe_end(2, 100), table.safe_end(3, 100)) == (70, 60, 0)


def test_java_connections_count_only_as_far_as_replicas_are_registered():
    rows = (_ack(90), _ack(80), _ack(70), _ack(60, "a"))
    assert _table(*rows, registered=None).acks() == [90, 80, 70, 60]
    assert _table(*rows, registered=2).acks() == [90, 60]
    assert _table(*rows, registered=0).acks() == [60]


def test_observers_and_stuck_replicas_never_count():
    table = _table(_ack(90, "spark", observer=True), _ack(80, usable=False), _ack(10, "a"))
    assert table.acks() == [10]
    assert table.in_sync(100, 50) == 0 and table.in_sync(50, 50) == 1


def test_a_replica_that_left_no_longer_counts():
    table = _table(_ack(90, "a"))
    table.leave(0)
    assert table.safe_end(1, 100) == 0 and table.safe_end(0, 100) == 100


@pytest.mark.parametrize(
    ("role", "setting", "needed"),
    [("ASYNC_MASTER", 3, 0), ("SYNC_MASTER", None, 1), ("SYNC_MASTER", 1, 0), ("SYNC_MASTER", 3, 2), ("SLAVE", 2, 0)],
)
def test_a_sync_master_waits_for_one_replica_unless_configured_otherwise(role, setting, needed):
    assert replicas_needed(role, setting) == needed


def table(**acked):
    acks = ReplicaAcks()
    for link, (identity, end) in enumerate(acked.items()):
        acks.join(link, LinkAck(f"peer{link}", identity, acked=end, usable=True))
    return acks


def test_a_replica_that_missed_a_deadline_is_not_in_sync_until_it_reports_more():
    acks = table(one=100)
    assert [row.peer for row in acks.missed(150)] == ["peer0"]
    assert acks.missed(150) == [], "it is returned once"
    assert (acks.in_sync(150, 1000), acks.safe_end(1, 150)) == (0, 100), "what it reported still counts"
    (row,) = acks.rows()
    row.report(100, usable=True)
    assert acks.in_sync(150, 1000) == 0, "a report of nothing new acknowledges nothing"
    row.report(120, usable=True)
    assert acks.in_sync(150, 1000) == 1


def test_only_the_replica_that_is_behind_the_deadline_is_late():
    acks = table(one=100, two=200)
    assert [row.peer for row in acks.missed(150)] == ["peer0"]
    assert acks.in_sync(200, 1000) == 1


def test_a_replica_with_two_connections_is_in_sync_by_the_one_that_reports():
    acks = ReplicaAcks()
    acks.join(1, LinkAck("old", "one", acked=100, usable=True))
    acks.missed(150)
    acks.join(2, LinkAck("new", "one", acked=120, usable=True))
    assert (acks.in_sync(150, 1000), acks.acks()) == (1, [120])


def test_a_replica_that_does_not_catch_up_is_behind_until_it_does():
    acks = table(steady=100, stuck=100)
    steady, stuck = acks.rows()

    def tick(now_ms, log_end):
        return [(row.identity, row.behind) for row in acks.tick(log_end, now_ms, 15_000)]

    assert tick(0, 100) == []
    for now_ms in range(500, 15_500, 500):
        steady.report(now_ms, usable=True)
        stuck.report(100 + now_ms // 500, usable=True)  # a little now and then is not enough
        assert tick(now_ms, now_ms) == []
    assert acks.in_sync(15_000, 1 << 30) == 2
    assert tick(15_500, 15_500) == [("stuck", True)]
    assert tick(16_000, 16_000) == [], "reported once"
    assert acks.in_sync(15_000, 1 << 30) == 1 and acks.acks() == [15_000, 130]
    steady.report(16_000, usable=True)
    stuck.report(16_000, usable=True)
    assert tick(16_500, 16_500) == [("stuck", False)]


def test_a_pause_of_the_master_brings_nobody_behind():
    acks = table(one=100)
    assert acks.tick(100, 0, 15_000) == acks.tick(200, 500, 15_000) == []
    assert acks.tick(200, 60_000, 15_000) == [], "its reports wait in the socket"
    assert [row.behind for row in acks.tick(200, 75_400, 15_000)] == [], "a long pause again"
    now_ms = 75_400
    for now_ms in range(75_900, 91_000, 500):
        if acks.tick(200, now_ms, 15_000):
            break
    assert now_ms > 75_400 + 14_000


def test_what_a_replica_reported_counts_from_its_newest_connection():
    """A machine that was restarted may lack what it had reported on a connection that is open still."""
    acks = ReplicaAcks()
    acks.join(1, LinkAck("b", "b", acked=900, usable=True))
    acks.join(2, LinkAck("b", "b"))
    acks.join(3, LinkAck("c", "c", acked=700, usable=True))
    acks.join(4, LinkAck("java", None, acked=800, usable=True))
    assert acks.ends() == {"c": 700}
    acks.rows()[1].report(500, usable=True)
    assert acks.ends() == {"b": 500, "c": 700}
