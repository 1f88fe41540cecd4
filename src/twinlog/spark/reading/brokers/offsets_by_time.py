"""Offsets by time, exact with every broker.

Brokers of 5.x find the first message stored at or after a time. Those of 4.x return any message of that millisecond, or
the nearest one, which may be too early. So the message found and the one before it are checked. If they do not fit, the
queue is searched by bisection from here: store times never decrease within a queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Protocol

from twinlog.spark.offsets import Offsets
from twinlog.wire.bodies import MessageQueue


class StoreTimes(Protocol):
    """What is asked of a cluster."""

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> Offsets: ...

    def store_times(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """When the messages at these offsets were stored; without those that do not exist."""
        ...


def exact_offsets(
    cluster: StoreTimes, group: str, times_ms: Mapping[MessageQueue, int], low: Offsets, high: Offsets
) -> Offsets:
    """The first offset in [low, high) stored at or after each queue's time; its `high` when there is none."""
    found = {queue: min(max(at, low[queue]), high[queue]) for queue, at in cluster.offsets_at(times_ms).items()}
    before = cluster.store_times(group, {queue: at - 1 for queue, at in found.items() if at > low[queue]})
    here = cluster.store_times(group, {queue: at for queue, at in found.items() if at < high[queue]})
    for queue, time_ms in times_ms.items():
        if before.get(queue, time_ms - 1) >= time_ms or here.get(queue, time_ms) < time_ms:
            found[queue] = _search(cluster, group, queue, time_ms, low[queue], high[queue])
    return found


def _search(cluster: StoreTimes, group: str, queue: MessageQueue, time_ms: int, low: int, high: int) -> int:
    def time_at(offset: int) -> int:
        return cluster.store_times(group, {queue: offset}).get(queue, time_ms)

    offsets = range(low, high)
    return low + bisect_left(offsets, time_ms, key=time_at)
