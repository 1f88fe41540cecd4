"""Lag in messages and time is known without reading the log."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.replication.master.log_marks import Lag, LogMarks


def test_a_replica_at_the_end_has_no_lag():
    marks = LogMarks(1000)
    assert marks.lag(1000, 5) == Lag(0, 0, 0)
    marks.dispatched(1100, 1, 5)
    assert marks.lag(1100, 9) == Lag(0, 0, 0)


def test_time_counts_from_the_first_message_that_is_missing():
    marks = LogMarks(0)
    marks.dispatched(100, 1, 1_000)
    marks.dispatched(200, 1, 3_600_000)  # an hour of silence before it is no lag
    assert marks.lag(100, 3_600_500) == Lag(100, 1, 500)
    assert marks.lag(0, 3_600_500) == Lag(200, 2, 3_599_500)


def test_a_lag_from_before_the_start_is_estimated_and_marked_so():
    marks = LogMarks(10_000)
    assert marks.lag(4_000, 7) == Lag(6_000, 1, 0, exact=False)
    marks.dispatched(12_000, 20, 50)
    assert marks.lag(4_000, 150) == Lag(8_000, 80, 100, exact=False)


def test_a_log_that_was_cut_is_counted_anew():
    marks = LogMarks(0)
    marks.dispatched(5_000, 50, 1)
    marks.dispatched(3_000, 0, 2)
    marks.dispatched(3_100, 1, 3)
    assert marks.lag(3_000, 3) == Lag(100, 1, 0)


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 3_000)), min_size=1, max_size=300), st.data())
def test_memory_is_bounded_and_counts_are_near_the_truth(records, data):
    marks, end, now_ms, ends = LogMarks(0, marks_max=16, gap_bytes=1_000), 0, 0, [0]
    for size, pause_ms in records:
        end, now_ms = end + size, now_ms + pause_ms
        ends.append(end)
        marks.dispatched(end, 1, now_ms)
    assert len(marks._ends) <= 16
    at = data.draw(st.integers(0, len(records)))
    lag = marks.lag(ends[at], now_ms)
    assert lag.bytes == end - ends[at] and lag.exact
    assert (lag.messages == 0) == (at == len(records))
    if len(records) < 14 and all(size >= 1_000 for size, _ in records):
        assert lag.messages == len(records) - at
    assert 0 <= lag.milliseconds <= now_ms
