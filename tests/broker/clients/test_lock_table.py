"""One client per queue and group, until a minute after its last renewal."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.clients.lock_table import LOCK_MS_MAX, LockLimits, LockTable
from twinlog.wire.bodies import MessageQueue

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def test_a_queue_has_one_holder_per_group():
    locks = LockTable()
    assert locks.lock("G", "one", QUEUES[:2], 0) == QUEUES[:2]
    assert locks.lock("G", "two", QUEUES, 1) == QUEUES[2:]
    assert locks.lock("H", "two", QUEUES, 1) == QUEUES


def test_a_lock_that_is_not_renewed_falls_to_the_next_who_asks():
    locks = LockTable()
    locks.lock("G", "one", QUEUES[:1], 0)
    locks.lock("G", "one", QUEUES[:1], 30_000)
    assert locks.lock("G", "two", QUEUES[:1], 30_000 + LOCK_MS_MAX) == []
    assert locks.lock("G", "two", QUEUES[:1], 30_001 + LOCK_MS_MAX) == QUEUES[:1]


def test_only_the_holder_unlocks():
    locks = LockTable()
    locks.lock("G", "one", QUEUES, 0)
    locks.unlock("G", "two", QUEUES)
    assert locks.lock("G", "two", QUEUES, 1) == []
    locks.unlock("G", "one", QUEUES)
    assert locks.lock("G", "two", QUEUES, 2) == QUEUES


def test_a_group_consumes_in_order_while_any_lock_lives():
    locks = LockTable()
    assert not locks.holds_any("G", 0)
    locks.lock("G", "one", QUEUES[:1], 0)
    assert locks.holds_any("G", LOCK_MS_MAX)
    assert not locks.holds_any("G", LOCK_MS_MAX + 1)
    locks.expire(LOCK_MS_MAX + 1)
    assert locks.lock("G", "two", [], 0) == []


def limits(count_max: int, per_group_max: int, refused: list[tuple[str, int]]) -> LockLimits:
    return LockLimits(count_max, per_group_max, lambda key, queues: refused.append((key, queues)))


def test_without_room_for_more_locks_a_free_queue_is_not_given():
    locks, refused = LockTable(), []
    few = limits(2, 100, refused)
    assert locks.lock("G", "one", QUEUES, 0, few) == QUEUES[:2]
    assert locks.lock("H", "two", QUEUES, 0, few) == [] and locks.lock("G", "one", QUEUES, 1, few) == QUEUES[:2]
    assert refused == [("maxLocks", len(QUEUES) - 2), ("maxLocks", len(QUEUES)), ("maxLocks", len(QUEUES) - 2)]
    locks.unlock("G", "one", QUEUES[:1])
    assert locks.lock("H", "two", QUEUES, 2, few) == QUEUES[:1]
    locks.expire(LOCK_MS_MAX + 2)
    assert locks.lock("H", "three", QUEUES, LOCK_MS_MAX + 4, few) == QUEUES[:2]


def test_one_group_does_not_take_the_room_of_others():
    locks, refused = LockTable(), []
    few = limits(4, 2, refused)
    assert locks.lock("G", "one", QUEUES, 0, few) == QUEUES[:2]
    assert locks.lock("H", "one", QUEUES, 0, few) == QUEUES[:2]
    assert refused[0] == ("maxLocksPerGroup", len(QUEUES) - 2)
    locks.unlock("G", "one", QUEUES[:1])
    assert locks.lock("G", "one", QUEUES[1:], 0, few) == QUEUES[1:]


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 40_000)), max_size=30)
)
def test_two_clients_never_hold_the_same_queue(steps):
    locks, holders, now_ms = LockTable(), {}, 0
    for take, client_id, queue_id, passed_ms in steps:
        now_ms += passed_ms
        queue = QUEUES[queue_id]
        holder, since_ms = holders.get(queue, (None, 0))
        if not take:
            locks.unlock("G", client_id, [queue])
            if holder == client_id:
                del holders[queue]
        elif locks.lock("G", client_id, [queue], now_ms):
            assert holder in (None, client_id) or now_ms - since_ms > LOCK_MS_MAX
            holders[queue] = (client_id, now_ms)
        else:
            assert holder not in (None, client_id)
            assert now_ms - since_ms <= LOCK_MS_MAX
