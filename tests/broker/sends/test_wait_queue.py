"""Answers wait for flush and replicas, each with its own deadline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.sends.wait_queue import Finished, WaitQueue
from twinlog.store.log.append import PutStatus

OK, DISK, REPLICA = PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT


def test_an_answer_leaves_when_its_last_byte_is_durable():
    queue = WaitQueue()
    queue.add(100, "a", flush_deadline_ms=5000)
    queue.add(200, "b", flush_deadline_ms=5000)
    assert queue.flushed(99) == []
    assert queue.flushed(150) == [Finished("a", OK)]
    assert queue.flushed(200) == [Finished("b", OK)]
    assert queue.deadline_ms is None


def test_one_flush_answers_everybody_it_covers():
    queue = WaitQueue()
    for end in range(10):
        queue.add(end, end, flush_deadline_ms=1)
    assert [finished.answer for finished in queue.flushed(7)] == list(range(8))


def test_with_both_waits_the_later_one_decides_when():
    queue = WaitQueue()
    queue.add(100, "a", flush_deadline_ms=5000, replica_deadline_ms=3000)
    assert queue.replicated(100) == []
    assert queue.flushed(100) == [Finished("a", OK)]


def test_a_late_flush_and_a_late_replica_have_their_own_codes():
    queue = WaitQueue()
    queue.add(100, "disk", flush_deadline_ms=10)
    queue.add(200, "replica", replica_deadline_ms=20)
    assert queue.deadline_ms == 10
    assert queue.expire(9) == []
    assert queue.expire(10) == [Finished("disk", DISK)]
    assert queue.expire(20) == [Finished("replica", REPLICA)]


def test_when_both_are_late_the_replica_is_named():
    queue = WaitQueue()
    queue.add(100, "a", flush_deadline_ms=10, replica_deadline_ms=20)
    assert queue.expire(10) == []
    assert queue.expire(20) == [Finished("a", REPLICA)]


def test_a_missing_replica_is_reported_even_after_a_good_flush():
    queue = WaitQueue()
    queue.add(100, "a", flush_deadline_ms=10, status=PutStatus.SLAVE_NOT_AVAILABLE)
    assert queue.flushed(100) == [Finished("a", PutStatus.SLAVE_NOT_AVAILABLE)]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.booleans()), max_size=20),
    st.lists(st.tuples(st.sampled_from(["flushed", "replicated", "expire"]), st.integers(0, 1200)), max_size=20),
)
def test_every_answer_leaves_exactly_once_and_never_before_its_time(records, steps):
    queue, end, waiting, left = WaitQueue(), 0, {}, {}
    for number, (size, flush, replica) in enumerate(records):
        end += size
        if not flush and not replica:
            continue
        waiting[number] = (end, flush, replica)
        deadlines = {"flush_deadline_ms": 1000 if flush else None, "replica_deadline_ms": 1100 if replica else None}
        queue.add(end, number, **deadlines)
    reached = {"flushed": 0, "replicated": 0, "expire": 0}
    for step, value in [*steps, ("expire", 2000)]:
        reached[step] = max(reached[step], value)
        for finished in getattr(queue, step)(value):
            assert finished.answer not in left
            left[finished.answer] = finished.status
            record_end, flush, replica = waiting[finished.answer]
            if finished.status is OK:
                assert not flush or reached["flushed"] >= record_end
                assert not replica or reached["replicated"] >= record_end
            else:
                assert reached["expire"] >= 1000
    assert left.keys() == waiting.keys()
