"""Reads that find everything in a block of units that was examined before.

What it trades: `read.read_queue` is the definition. A consumer that reads a backlog asks again and again for the next
few messages of its queue. Each time their units are read, compared with all limits, and their records looked for in the
log. Here all that is done once for a block of units (`examined`), and a read takes its part of the lists. Whatever is
not plainly inside returns None: the end of a block, a batch that may be full, old records, a block in two segments,
units that changed. A property test holds both equal.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from twinlog.store.queues.read import ReadLimits, ReadResult, ReadStatus

if TYPE_CHECKING:
    from twinlog.store.log.commit_log import CommitLog
    from twinlog.store.queues.consume_queue import ConsumeQueue
    from twinlog.store.queues.examined import Examined

_FOUND = ReadStatus.FOUND


def read_ready(
    block: Examined,
    queue: ConsumeQueue,
    log: CommitLog,
    physical_min: int,
    queue_offset: int,
    count: int,
    limits: ReadLimits,
) -> ReadResult | None:
    """The next `count` messages from `queue_offset` on, which is in the block.

    None unless the block has them all, and the log their records, none of them before `physical_min`.
    """
    _, _, _, _, _, size_max, _, numbers, base, starts, ends, is_filtered, is_apart = block
    if count > limits.count_in_memory_max:
        count = limits.count_in_memory_max
    first = bisect_left(numbers, queue_offset) if is_filtered else queue_offset - numbers[0]
    last = first + count
    if last > len(starts) or not is_apart:
        return None
    next_offset, begin, end = numbers[last - 1] + 1, starts[first], ends[last - 1]
    if is_filtered and next_offset - queue_offset > max(limits.units_examined_max, count):
        return None
    if base + begin < physical_min or base + end > log.log_end:
        return None
    begins, behind = starts[first:last], ends[first:last]
    total = sum(behind) - sum(begins)
    if total + size_max > limits.bytes_in_memory_max:
        return None
    segment = log.segment_at(base + begin)
    if segment is None or segment.base != base or end > segment.size:
        return None
    view = memoryview(segment.map)
    if end - begin == total:
        buffers = [view[begin:end]]
    else:
        buffers = [view[at:to] for at, to in zip(begins, behind, strict=True)]
    return ReadResult(_FOUND, next_offset, queue.min, queue.end, buffers, count, total)
