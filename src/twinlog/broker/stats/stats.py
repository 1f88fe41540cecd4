"""How much was sent and consumed: totals that only grow, and how fast they grew in the last minute, hour and day.

The hot paths add to the two members of a `MessageCounter`, nothing else; `readings` has its earlier values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twinlog.broker.stats.latency import Latencies
from twinlog.broker.stats.readings import MessageCounter, Readings
from twinlog.broker.stats.rpc_times import RpcTimes

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Growth:
    """What a total gained in a window."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0  # per message


@dataclass(frozen=True, slots=True)
class Snapshot:
    minute: Growth
    hour: Growth
    day: Growth


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    """The totals of a whole broker at one time."""

    time_ms: int = 0
    puts: int = 0
    put_bytes: int = 0
    gets: int = 0
    found: int = 0
    missed: int = 0


class BrokerStats:
    """All statistics of one broker; `tick` once a second keeps the windows moving."""

    def __init__(self, now_ms: int, cluster_name: str = "DefaultCluster") -> None:
        self.cluster_name = cluster_name
        self.failed_puts = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.put_times = Latencies(now_ms)
        self.rpc = RpcTimes()
        self.longest_get_s = 0.0
        self._puts: dict[str, MessageCounter] = {}
        self._gets: dict[tuple[str, str], MessageCounter] = {}
        self._send_backs: dict[tuple[str, str], MessageCounter] = {}
        self._readings = Readings(now_ms)
        self._gone_puts, self._gone_gets = MessageCounter(), MessageCounter()  # of topics that were deleted since
        self._all_puts, self._all_gets = self._readings.counter(), self._readings.counter()
        self._seconds: deque[BrokerTotals] = deque([BrokerTotals(time_ms=now_ms)], maxlen=_SECONDS_MAX + 1)
        self.yesterday_morning = self.today_morning = BrokerTotals(time_ms=now_ms)

    # -- counting ----------------------------------------------------------------------------------

    def puts(self, topic: str) -> MessageCounter:
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._puts[topic] = self._readings.counter()
        return counter

    def gets(self, topic: str, group: str) -> MessageCounter:
        counter = self._gets.get((topic, group))
        if counter is None:
            counter = self._gets[topic, group] = self._readings.counter()
        return counter

    def send_backs(self, topic: str, group: str) -> MessageCounter:
        counter = self._send_backs.get((topic, group))
        if counter is None:
            counter = self._send_backs[topic, group] = self._readings.counter()
        return counter

    def failed_put(self) -> None:
        self.failed_puts += 1

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its numbers go, the broker's totals stay."""
        gone = self._puts.pop(topic, None)
        if gone is not None:
            self._gone_puts.count += gone.count
            self._gone_puts.bytes += gone.bytes
            self._readings.forget(gone)
        for table in (self._gets, self._send_backs):
            for key in [key for key in table if key[0] == topic]:
                counter = table.pop(key)
                self._readings.forget(counter)
                if table is self._gets:
                    self._gone_gets.count += counter.count

    # -- the passing of time -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Take the readings that are due."""
        for _ in self.tick_in_steps(now_ms):
            pass

    def tick_in_steps(self, now_ms: int) -> Iterator[None]:
        """The same with pauses between the steps of the iterator: there may be very many counters."""
        self.put_times.tick(now_ms)
        self._seconds.append(self.totals(now_ms))  # sums up too
        yield from self._readings.tick(now_ms)

    def new_day(self, now_ms: int) -> None:
        """It is midnight in the broker's time zone."""
        self.yesterday_morning, self.today_morning = self.today_morning, self.totals(now_ms)

    # -- reading -----------------------------------------------------------------------------------

    def totals(self, now_ms: int) -> BrokerTotals:
        self._sum_up()
        puts, gets = self._all_puts, self._all_gets
        return BrokerTotals(now_ms, puts.count, puts.bytes, gets.count, self.pulls_found, self.pulls_missed)

    def put_rows(self) -> Iterable[tuple[str, MessageCounter]]:
        return self._puts.items()

    def get_rows(self) -> Iterable[tuple[tuple[str, str], MessageCounter]]:
        return self._gets.items()

    def per_second(self, member: str, seconds: int) -> float:
        """How fast a member of `BrokerTotals` grew over the last so many seconds, or since the start."""
        newest = self._seconds[-1]
        oldest = self._seconds[max(len(self._seconds) - 1 - seconds, 0)]
        return _rate(getattr(newest, member) - getattr(oldest, member), newest.time_ms - oldest.time_ms)

    def view(self, name: str, key: str, now_ms: int) -> Snapshot | None:
        """A statistic by the name and key that mqadmin uses; None when nothing was counted for them."""
        counter = self._find(name, key)
        if counter is None:
            return None
        wants_bytes = name in (TOPIC_PUT_SIZE, GROUP_GET_SIZE)
        minute, hour, day = (self._growth(counter, window, wants_bytes, now_ms) for window in range(3))
        return Snapshot(minute, hour, day)

    def put_tps(self, topic: str, now_ms: int) -> float:
        """Messages per second sent to a topic in the last minute."""
        counter = self._puts.get(topic)
        return 0.0 if counter is None else self._growth(counter, 0, False, now_ms).tps

    def get_tps(self, topic: str, group: str, now_ms: int) -> float:
        """Messages per second that a group took from a topic in the last minute."""
        counter = self._gets.get((topic, group))
        return 0.0 if counter is None else self._growth(counter, 0, False, now_ms).tps

    # -- inside ------------------------------------------------------------------------------------

    def _find(self, name: str, key: str) -> MessageCounter | None:
        if name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            return self._puts.get(key)
        topic, _, group = key.partition("@")
        if name in (GROUP_GET_NUMS, GROUP_GET_SIZE):
            return self._gets.get((topic, group))
        if name == SEND_BACK_NUMS:
            return self._send_backs.get((topic, group))
        if key != self.cluster_name:
            return None
        self._sum_up()
        return {BROKER_PUT_NUMS: self._all_puts, BROKER_GET_NUMS: self._all_gets}.get(name)

    def _growth(self, counter: MessageCounter, window: int, wants_bytes: bool, now_ms: int) -> Growth:
        count, size, time_ms = self._readings.oldest(counter, window)
        counted, sized = counter.count - count, counter.bytes - size
        total = sized if wants_bytes else counted
        return Growth(total, _rate(total, now_ms - time_ms), total / counted if counted else 0.0)

    def _sum_up(self) -> None:
        puts, gets = self._puts.values(), self._gets.values()
        self._all_puts.count = self._gone_puts.count + sum([counter.count for counter in puts])
        self._all_puts.bytes = self._gone_puts.bytes + sum([counter.bytes for counter in puts])
        self._all_gets.count = self._gone_gets.count + sum([counter.count for counter in gets])


def _rate(gained: int, elapsed_ms: int) -> float:
    return round(gained * 1000 / elapsed_ms, 2) if elapsed_ms > 0 else 0.0
