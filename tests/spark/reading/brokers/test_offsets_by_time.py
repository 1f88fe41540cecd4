"""Offsets by time are exact, however a broker searches."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from twinlog.spark.reading.brokers.offsets_by_time import exact_offsets
from twinlog.wire.bodies import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class Broker:
    """Holds messages from `low` on, and finds one by a search of its own."""

    def __init__(self, times, low, answer):
        self.times, self.low, self.answer, self.asked = times, low, answer, 0

    def offsets_at(self, times_ms):
        return {QUEUE: self.answer}

    def store_times(self, group, offsets):
        self.asked += 1
        return {
            queue: self.times[offset - self.low]
            for queue, offset in offsets.items()
            if 0 <= offset - self.low < len(self.times)
        }


@given(
    st.lists(st.integers(0, 30), max_size=40).map(sorted), st.integers(0, 9), st.integers(0, 31), st.integers(-3, 60)
)
def test_whatever_the_broker_answers_the_first_message_of_the_time_is_found(times, low, time_ms, answer):
    broker = Broker(times, low, answer)
    high = low + len(times)
    found = exact_offsets(broker, "g", {QUEUE: time_ms}, {QUEUE: low}, {QUEUE: high})
    assert found == {QUEUE: low + bisect_left(times, time_ms)}


def test_a_broker_that_is_right_is_asked_twice():
    broker = Broker(list(range(100)), 0, 50)
    assert exact_offsets(broker, "g", {QUEUE: 50}, {QUEUE: 0}, {QUEUE: 100}) == {QUEUE: 50}
    assert broker.asked == 2
