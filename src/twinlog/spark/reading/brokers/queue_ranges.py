"""Which offsets a batch reads, and how they are split into tasks; no I/O, equal arguments give equal plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinlog.spark.offsets import Offsets, where
from twinlog.spark.reading.data_loss import OnLoss
from twinlog.wire.bodies import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The messages of one queue with offsets in [start, end)."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def plan_queue_ranges(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], on_loss: OnLoss
) -> list[QueueRange]:
    """The ranges between two offsets of a stream.

    A queue that is only in `end` is new and starts there. One that is only in `start` was deleted.
    """
    ranges = []
    for queue in sorted(end):
        first, last = start.get(queue, end[queue]), end[queue]
        if first > last:
            on_loss(where(queue), f"the batch would start at {first} and end at {last}, before it")
        elif first < last:
            ranges.append(QueueRange(queue, first, last))
    for queue in sorted(set(start) - set(end)):
        on_loss(where(queue, start[queue]), "the queue is gone: its topic was deleted or has fewer queues now")
    return ranges


def split_ranges(
    ranges: Iterable[QueueRange], *, partitions_min: int | None = None, rows_max: int | None = None
) -> list[QueueRange]:
    """The ranges split into at least `partitions_min` pieces of at most `rows_max` rows, in queue order.

    Offsets of a queue are dense, so pieces of equal length hold equal numbers of messages.
    """
    ranges = [one for one in ranges if len(one)]
    pieces = {one: -(-len(one) // rows_max) if rows_max else 1 for one in ranges}
    total = sum(map(len, ranges))
    if partitions_min and total and sum(pieces.values()) < partitions_min:
        for one in ranges:
            wanted = round(len(one) / total * partitions_min)
            pieces[one] = min(max(pieces[one], wanted), len(one))
        short = partitions_min - sum(pieces.values())
        for one in sorted(ranges, key=lambda r: -len(r) / pieces[r]):
            extra = min(max(short, 0), len(one) - pieces[one])
            pieces[one] += extra
            short -= extra
    return [piece for one in ranges for piece in _pieces(one, pieces[one])]


def cap_offsets(start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], rows_max: int | None) -> Offsets:
    """`latest`, moved back so that about `rows_max` rows lie between `start` and it.

    Each queue gets a share in proportion to its backlog, and at least one row so that none starves. The total is
    above `rows_max` only if more queues than that have a backlog.
    """
    backlog = {queue: max(latest[queue] - start.get(queue, latest[queue]), 0) for queue in latest}
    total = sum(backlog.values())
    if rows_max is None or total <= rows_max:
        return dict(latest)
    busy = [queue for queue in sorted(backlog) if backlog[queue]]
    shares = {queue: max(backlog[queue] * rows_max // total, 1) for queue in busy}
    left = rows_max - sum(shares.values())
    for queue in sorted(busy, key=lambda q: (-(backlog[q] * rows_max % total), q)):
        if left <= 0:
            break
        if shares[queue] < backlog[queue]:
            shares[queue] += 1
            left -= 1
    for queue in sorted(busy, key=lambda q: (-shares[q], q)):  # small queues were rounded up
        if left >= 0:
            break
        give = min(shares[queue] - 1, -left)
        shares[queue] -= give
        left += give
    return {queue: start.get(queue, latest[queue]) + shares.get(queue, 0) for queue in latest}


def rows_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    return sum(max(end[queue] - start.get(queue, end[queue]), 0) for queue in end)


def _pieces(one: QueueRange, count: int) -> list[QueueRange]:
    count = max(1, min(count, len(one)))
    bounds = [one.start + len(one) * i // count for i in range(count + 1)]
    return [replace(one, start=low, end=high) for low, high in itertools.pairwise(bounds)]
