"""What was seen lately: numbers for charts, and events in words. Bounded, and without I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.observe.cluster.cluster_view import ClusterView, GroupView
from twinlog.observe.cluster.health import Level

SAMPLES_MAX = 1_800  # of one series: an hour at one sample in two seconds
SERIES_MAX = 4_000
EVENTS_MAX = 500
Key = tuple[str, ...]  # ("lag_bytes", "127.0.0.1:10921")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed between two rounds."""

    at_ms: int
    group: str  # cluster/name
    level: Level
    text: str


class Series:
    """Numbers over time, the newest last; None is a gap."""

    __slots__ = ("_points",)

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._points: deque[tuple[int, float | None]] = deque(maxlen=samples_max)

    def add(self, at_ms: int, value: float | None) -> None:
        self._points.append((at_ms, value))

    def since(self, begin_ms: int) -> list[tuple[int, float | None]]:
        return [one for one in self._points if one[0] >= begin_ms]

    @property
    def last(self) -> float | None:
        return self._points[-1][1] if self._points else None

    def per_second(self) -> float | None:
        """How fast the newest value grew since the one before; None if either is unknown, or it shrank."""
        if len(self._points) < 2:
            return None
        (then_ms, then), (now_ms, now) = self._points[-2], self._points[-1]
        if then is None or now is None or now < then or now_ms <= then_ms:
            return None
        return (now - then) * 1000 / (now_ms - then_ms)


class History:
    """The series of all brokers, and the events of all groups. A series without new values goes first."""

    def __init__(self) -> None:
        self._series: OrderedDict[Key, Series] = OrderedDict()
        self._before: ClusterView | None = None
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)

    def add(self, view: ClusterView) -> None:
        """Take the numbers of a round, and note what changed since the round before."""
        for group in view.groups:
            for broker in group.brokers:
                self.record(("puts", broker.address), view.at_ms, broker.puts_per_second)
                self.record(("gets", broker.address), view.at_ms, broker.gets_per_second)
                self.record(("log_end", broker.address), view.at_ms, broker.log_end)
            for replica in group.replicas:
                self.record(("lag_bytes", replica.address), view.at_ms, replica.lag_bytes)
                self.record(("lag_messages", replica.address), view.at_ms, replica.lag_messages)
                seconds = None if replica.lag_ms is None else replica.lag_ms / 1000
                self.record(("lag_seconds", replica.address), view.at_ms, seconds)
                self.record(("transfer", replica.address), view.at_ms, self.transfer_rate(group, replica.address))
        if self._before is not None and not view.error:
            self.events.extend(events_between(self._before, view))
        if not view.error:
            self._before = view

    def record(self, key: Key, at_ms: int, value: float | None) -> None:
        """Add one number to a series of this name."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
            while len(self._series) > SERIES_MAX:
                self._series.popitem(last=False)
        self._series.move_to_end(key)
        series.add(at_ms, value)

    def series(self, key: Key) -> Series:
        return self._series.get(key) or Series()

    def transfer_rate(self, group: GroupView, address: str) -> float | None:
        """Bytes a second that a replica gets: as it says, else as its log was seen to grow."""
        said = next((one.bytes_per_second for one in group.replicas if one.address == address), None)
        return said if said is not None else self.series(("log_end", address)).per_second()


def events_between(before: ClusterView, after: ClusterView) -> Iterator[Event]:
    """What changed from one round to the next, oldest cause first."""
    for group in after.groups:
        where, was = f"{group.cluster}/{group.name}", before.group(group.cluster, group.name)
        if was is None:
            yield Event(after.at_ms, where, Level.OK, f"{group.name} is registered")
            continue
        old, new = was.master, group.master
        if old is not None and new is not None and old.address != new.address:
            epoch = "" if group.epoch is None else f", epoch {group.epoch}"
            yield Event(after.at_ms, where, Level.OK, f"the master was {old.address} and is {new.address} now{epoch}")
        known = {one.address: one for one in was.brokers}
        for broker in group.brokers:
            seen = known.get(broker.address)
            if seen is None:
                yield Event(after.at_ms, where, Level.OK, f"{broker.address} is registered")
            elif seen.health.level != broker.health.level:
                yield Event(after.at_ms, where, broker.health.level, f"{broker.address}: {broker.health.reason}")
