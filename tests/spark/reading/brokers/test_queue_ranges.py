import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.spark.errors import DataLoss
from twinlog.spark.reading.brokers.pull_window import PullWindow
from twinlog.spark.reading.brokers.queue_ranges import (
    QueueRange,
    cap_offsets,
    plan_queue_ranges,
    rows_between,
    split_ranges,
)
from twinlog.spark.reading.data_loss import report_loss
from twinlog.wire.bodies import MessageQueue

QUEUES = [MessageQueue("T", "a", n) for n in range(6)]
A, B, C = QUEUES[:3]
sizes = st.lists(st.integers(0, 5000), min_size=1, max_size=6)


def fail(place, what):
    report_loss(True, place, what)


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 900))
def test_pieces_cover_the_ranges_exactly_and_in_order(lengths, partitions_min, rows_max):
    ranges = [QueueRange(q, 10, 10 + n) for q, n in zip(QUEUES, lengths, strict=False)]
    pieces = split_ranges(ranges, partitions_min=partitions_min, rows_max=rows_max)
    found = [(p.queue, n) for p in pieces for n in range(p.start, p.end)]
    assert found == [(r.queue, n) for r in ranges for n in range(r.start, r.end)]
    assert all(len(piece) for piece in pieces)
    assert rows_max is None or all(len(piece) <= rows_max for piece in pieces)
    assert len(pieces) >= min(partitions_min or 0, sum(lengths))


def test_without_limits_each_queue_is_one_piece():
    ranges = [QueueRange(A, 0, 10), QueueRange(B, 5, 5)]
    assert split_ranges(ranges) == [QueueRange(A, 0, 10)]


@given(sizes, st.integers(1, 8000))
def test_a_limit_is_kept_and_every_queue_moves(backlogs, rows_max):
    start = {q: 100 for q, _ in zip(QUEUES, backlogs, strict=False)}
    latest = {q: 100 + n for q, n in zip(QUEUES, backlogs, strict=False)}
    end = cap_offsets(start, latest, rows_max)
    busy = [q for q in latest if latest[q] > start[q]]
    assert all(start[q] < end[q] <= latest[q] for q in busy)
    assert rows_between(start, end) == min(sum(backlogs), max(rows_max, len(busy)))


def test_a_limit_is_shared_in_proportion_to_the_backlog():
    assert cap_offsets({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_a_queue_found_with_the_end_starts_there():
    assert plan_queue_ranges({A: 1}, {A: 3, B: 7}, fail) == [QueueRange(A, 1, 3)]


def test_a_batch_that_ends_before_it_starts_is_a_loss():
    with pytest.raises(DataLoss, match="start at 350 and end at 100"):
        plan_queue_ranges({A: 350}, {A: 100}, fail)
    assert plan_queue_ranges({A: 350, B: 0}, {A: 100, B: 1}, lambda *_: None) == [QueueRange(B, 0, 1)]


def test_a_queue_that_is_gone_is_a_loss():
    with pytest.raises(DataLoss, match="queue 0 offset 5: the queue is gone"):
        plan_queue_ranges({A: 5}, {}, fail)


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_pulls_in_flight_bring_each_message_once_and_in_order(length, step, depth, random):
    """The broker gives fewer than asked, answers come in any order, and connections are lost."""
    window = PullWindow(5, 5 + length, step=step, depth=depth)
    taken, flying = [], []
    while not window.is_done:
        flying += window.pulls()
        assert len(flying) <= depth
        if random.random() < 0.1:
            flying.clear()
            window.drop_asked()
            continue
        pull = flying.pop(random.randrange(len(flying)))
        count = random.randint(1, pull.count)
        window.answer(pull, pull.offset + count, memoryview(bytes(count)))
        taken += window.take()
        assert sum(map(len, taken)) + 5 <= window.at
    assert sum(map(len, taken)) == length
    assert window.at == 5 + length


def test_a_broker_that_gives_fewer_is_asked_for_fewer():
    window = PullWindow(0, 100, step=32, depth=1)
    (pull,) = window.pulls()
    assert window.answer(pull, 8, memoryview(b"x"))
    (rest,) = window.pulls()
    assert (rest.offset, rest.count) == (8, 24)
    window.answer(rest, 32, memoryview(b"y"))
    window.take()
    assert [pull.count for pull in window.pulls()] == [8]
    assert not window.answer(rest, 8)
