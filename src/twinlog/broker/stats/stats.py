"""How much was sent and consumed: totals that only grow, and how fast they grew in the last minute, hour and day.

The hot paths add to the two members of a `MessageCounter`, nothing else. A counter above zero has one ring of old
readings per window. All rings of a window are read at the same times, so a reading is eight bytes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.broker.stats.latency import Latencies

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

MINUTE_STEP_MS, MINUTE_READINGS = 10_000, 7
HOUR_STEP_MS, HOUR_READINGS = 600_000, 7
DAY_STEP_MS, DAY_READINGS = 3_600_000, 25
_KINDS = ((MINUTE_STEP_MS, MINUTE_READINGS), (HOUR_STEP_MS, HOUR_READINGS), (DAY_STEP_MS, DAY_READINGS))
_SECONDS_MAX = 600


class MessageCounter:
    """Running totals of one statistic."""

    __slots__ = ("bytes", "count", "rings")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.rings: tuple[array[int], ...] | None = None  # per window: counts, then bytes


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


class _Clock:
    """When the rings of one window were last read."""

    def __init__(self, step_ms: int, readings: int, now_ms: int) -> None:
        self.step_ms, self.readings = step_ms, readings
        self.times = [now_ms] * readings
        self.oldest = 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self.times[self.oldest - 1] >= self.step_ms

    def tick(self, now_ms: int) -> int:
        """The index in every ring where the new reading goes."""
        index = self.oldest
        self.times[index] = now_ms
        self.oldest = (index + 1) % self.readings
        return index


class BrokerStats:
    """All statistics of one broker; `tick` once a second keeps the windows moving."""

    def __init__(self, now_ms: int, cluster_name: str = "DefaultCluster") -> None:
        self.cluster_name = cluster_name
        self.failed_puts = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.put_times = Latencies(now_ms)
        self.longest_get_s = 0.0
        self._puts: dict[str, MessageCounter] = {}
        self._gets: dict[tuple[str, str], MessageCounter] = {}
        self._send_backs: dict[tuple[str, str], MessageCounter] = {}
        self._gone_puts, self._gone_gets = MessageCounter(), MessageCounter()  # of topics that were deleted since
        self._all_puts, self._all_gets = MessageCounter(), MessageCounter()
        self._clocks = [_Clock(step_ms, readings, now_ms) for step_ms, readings in _KINDS]
        self._seconds: deque[BrokerTotals] = deque([BrokerTotals(time_ms=now_ms)], maxlen=_SECONDS_MAX + 1)
        self.yesterday_morning = self.today_morning = BrokerTotals(time_ms=now_ms)

    # -- counting ----------------------------------------------------------------------------------

    def puts(self, topic: str) -> MessageCounter:
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._puts[topic] = MessageCounter()
        return counter

    def gets(self, topic: str, group: str) -> MessageCounter:
        counter = self._gets.get((topic, group))
        if counter is None:
            counter = self._gets[topic, group] = MessageCounter()
        return counter

    def send_backs(self, topic: str, group: str) -> MessageCounter:
        counter = self._send_backs.get((topic, group))
        if counter is None:
            counter = self._send_backs[topic, group] = MessageCounter()
        return counter

    def failed_put(self) -> None:
        self.failed_puts += 1

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its numbers go, the broker's totals stay."""
        gone = self._puts.pop(topic, None)
        if gone is not None:
            self._gone_puts.count += gone.count
            self._gone_puts.bytes += gone.bytes
        for key in [key for key in self._gets if key[0] == topic]:
            self._gone_gets.count += self._gets[key].count
            del self._gets[key]
        for key in [key for key in self._send_backs if key[0] == topic]:
            del self._send_backs[key]

    # -- the passing of time -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Take the readings that are due."""
        self.put_times.tick(now_ms)
        self._seconds.append(self.totals(now_ms))
        for kind, clock in enumerate(self._clocks):
            if clock.is_due(now_ms):
                self._sum_up()
                index = clock.tick(now_ms)
                for counter in self._active():
                    if counter.rings is None:
                        counter.rings = tuple(array("q", bytes(16 * readings)) for _, readings in _KINDS)
                    ring = counter.rings[kind]
                    ring[index], ring[index + clock.readings] = counter.count, counter.bytes

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
        minute, hour, day = (self._growth(counter, kind, wants_bytes, now_ms) for kind in range(3))
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

    def _growth(self, counter: MessageCounter, kind: int, wants_bytes: bool, now_ms: int) -> Growth:
        clock = self._clocks[kind]
        counted, sized = counter.count, counter.bytes
        if counter.rings is not None:
            ring = counter.rings[kind]
            counted -= ring[clock.oldest]
            sized -= ring[clock.oldest + clock.readings]
        total = sized if wants_bytes else counted
        elapsed_ms = now_ms - clock.times[clock.oldest]
        return Growth(total, _rate(total, elapsed_ms), total / counted if counted else 0.0)

    def _sum_up(self) -> None:
        puts, gets = self._puts.values(), self._gets.values()
        self._all_puts.count = self._gone_puts.count + sum([counter.count for counter in puts])
        self._all_puts.bytes = self._gone_puts.bytes + sum([counter.bytes for counter in puts])
        self._all_gets.count = self._gone_gets.count + sum([counter.count for counter in gets])

    def _active(self) -> Iterable[MessageCounter]:
        for table in (self._puts, self._gets, self._send_backs):
            for counter in table.values():
                if counter.count:
                    yield counter
        yield self._all_puts
        yield self._all_gets


def _rate(gained: int, elapsed_ms: int) -> float:
    return round(gained * 1000 / elapsed_ms, 2) if elapsed_ms > 0 else 0.0
