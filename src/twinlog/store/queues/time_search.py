"""Offsets by time: a queue is searched by the store times of its records, which grow with the queue offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from twinlog.store.queues.consume_queue import FILL_SIZE
from twinlog.store.queues.queue_table import Queue
from twinlog.store.queues.read import LogReader
from twinlog.wire.record_layout import RECORD_BYTES_MIN, store_timestamp


def search_offset(queue: Queue | None, log: LogReader, timestamp_ms: int, *, upper: bool = False) -> int:
    """The first offset stored at or after `timestamp_ms`, or with `upper` the last one at or before it.

    Beyond the end that is the max offset (upper: the last message), before the start the min offset.
    """
    if queue is None or queue.max_offset == queue.min_offset:
        return queue.max_offset if queue is not None else 0
    offsets = range(queue.min_offset, queue.max_offset)

    def key(queue_offset: int) -> int:
        return store_time_at(queue, log, queue_offset)

    if upper:
        return offsets[0] + max(0, bisect_right(offsets, timestamp_ms, key=key) - 1)
    return offsets[0] + bisect_left(offsets, timestamp_ms, key=key)


def store_time_at(queue: Queue | None, log: LogReader, queue_offset: int) -> int:
    """When the message at `queue_offset` was stored; -1 when the queue or the log does not have it."""
    unit = queue.unit(queue_offset) if queue is not None else None
    return _store_time(log, unit.physical_offset, unit.size) if unit is not None else -1


def _store_time(log: LogReader, physical_offset: int, size: int) -> int:
    """When the record was stored, in ms; -1 when the log does not have it."""
    record = log.slice(physical_offset, size) if RECORD_BYTES_MIN <= size < FILL_SIZE else None
    return -1 if record is None else store_timestamp(record)
