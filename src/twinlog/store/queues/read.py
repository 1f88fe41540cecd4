"""Reading messages through a queue: what a pull gets, and offsets by time.

A fast path: it runs once per pull, looks at units as plain numbers, and returns windows on the mapped log.
Records that lie side by side become one window, so a consumer that keeps up costs one slice per pull.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

import msgspec

from twinlog.store.queues.batch_consume_queue import BatchConsumeQueue
from twinlog.store.queues.consume_queue import FILL_SIZE, ConsumeQueue
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX, ExtUnit
from twinlog.wire.record_layout import RECORD_BYTES_MIN, store_timestamp

Accept = Callable[[int | None, ExtUnit | None], bool]
AcceptRecord = Callable[[memoryview], bool]


class LogReader(Protocol):
    """What reading needs of the commit log."""

    @property
    def log_start(self) -> int: ...

    @property
    def log_end(self) -> int: ...

    def slice(self, physical_offset: int, size: int) -> memoryview | None: ...


class ReadStatus(StrEnum):
    """RocketMQ's names, which travel in the remark of a pull response."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(msgspec.Struct):
    """What a read found; `buffers` are windows on the mapped log, to be sent or decoded soon."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview] = []
    count: int = 0
    size: int = 0
    far_behind: bool = False  # the reader is further back than memory reaches


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """When a batch is full. Records further than `memory_bytes` behind the log's end count as on disk."""

    bytes_in_memory_max: int = 262_144
    count_in_memory_max: int = 32
    bytes_on_disk_max: int = 65_536
    count_on_disk_max: int = 8
    units_examined_max: int = 800
    memory_bytes: int = 1 << 62

    @classmethod
    def of_machine(cls, ratio_percent: int = 40, **limits: int) -> ReadLimits:
        """Limits for this machine's memory (accessMessageInMemoryMaxRatio)."""
        return cls(memory_bytes=physical_memory_bytes() * ratio_percent // 100, **limits)


def read_queue(
    queue: ConsumeQueue | BatchConsumeQueue | None,
    log: LogReader,
    queue_offset: int,
    *,
    count_max: int,
    limits: ReadLimits,
    bytes_max: int = 1 << 62,
    accept: Accept | None = None,
    accept_record: AcceptRecord | None = None,
    correct_offset: bool = True,
) -> ReadResult:
    """Messages from `queue_offset` on, as a pull answers them.

    `accept` decides on the tags code and filter data of a unit, `accept_record` on the record's bytes; units
    that they refuse still move `next_offset` on. The first message fits whatever the limits say.
    """
    count_max = max(1, count_max)
    min_offset, max_offset = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
    if queue is None or not min_offset <= queue_offset < max_offset:
        return _outside(queue_offset, min_offset, max_offset, correct_offset)
    if accept is accept_record is None and queue.is_plain:
        count = min(count_max, limits.count_in_memory_max, max_offset - queue_offset)
        whole = _read_whole(queue, log, queue_offset, count, min(bytes_max, limits.bytes_in_memory_max), limits)
        if whole is not None:
            return whole
    log_start, log_end = log.log_start, log.log_end
    on_disk_below = log_end - limits.memory_bytes
    examined_end = min(max_offset, queue_offset + max(limits.units_examined_max, count_max))
    chunk = min(count_max, limits.count_in_memory_max) if accept is accept_record is None else 128
    next_offset, newest, total, count = queue_offset, 0, 0, 0
    status = ReadStatus.NO_MATCHED_MESSAGE
    run_start = run_end = -1
    runs: list[tuple[int, int]] = []
    bytes_room, count_room = min(bytes_max, limits.bytes_in_memory_max), limits.count_in_memory_max
    full = False
    while not full and next_offset < examined_end:
        chunk_start = next_offset
        for (physical_offset, size, tags_code), after, number in queue.scan(next_offset, chunk):
            if physical_offset < on_disk_below:
                bytes_room, count_room = min(bytes_max, limits.bytes_on_disk_max), limits.count_on_disk_max
            elif count_room == limits.count_on_disk_max:
                bytes_room, count_room = min(bytes_max, limits.bytes_in_memory_max), limits.count_in_memory_max
            if (total and (total + size > bytes_room or count >= count_room or count + number > count_max)) or (
                after - number >= examined_end
            ):
                full = True
                break
            next_offset, newest = after, physical_offset
            if physical_offset < log_start or size == FILL_SIZE:
                if not total:
                    status = ReadStatus.MESSAGE_WAS_REMOVING
                continue
            if accept is not None:
                ext = None
                if tags_code <= ADDRESS_MAX:
                    ext = queue.ext_unit(tags_code)
                    accepted = accept(ext.tags_code if ext is not None else None, ext)
                else:
                    accepted = accept(tags_code, None)
                if not accepted:
                    continue
            if accept_record is not None:
                record = log.slice(physical_offset, size)
                if record is None or not accept_record(record):
                    continue
            if physical_offset == run_end:
                run_end += size
            else:
                if run_end >= 0:
                    runs.append((run_start, run_end - run_start))
                run_start, run_end = physical_offset, physical_offset + size
            total += size
            count += number
        if next_offset == chunk_start and not full:  # units vanished between the look and the read
            next_offset = queue.next_file(next_offset)
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
    if total:
        runs.append((run_start, run_end - run_start))
        status = ReadStatus.FOUND
    buffers = [window for start, size in runs if (window := log.slice(start, size)) is not None]
    if len(buffers) != len(runs):
        if accept_record is not None:  # it has looked at every record, so retention was faster
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, next_offset, min_offset, max_offset)
        return read_queue(
            queue, log, queue_offset, count_max=count_max, limits=limits, bytes_max=bytes_max, accept=accept,
            accept_record=lambda record: True, correct_offset=correct_offset,
        )  # fmt: skip
    far_behind = log_end - newest > limits.memory_bytes
    return ReadResult(status, next_offset, min_offset, max_offset, buffers, count, total, far_behind)


def _read_whole(
    queue: ConsumeQueue | BatchConsumeQueue, log: LogReader, queue_offset: int, count: int, bytes_max: int,
    limits: ReadLimits,
) -> ReadResult | None:  # fmt: skip
    """The usual case of `read_queue`, without its loop: all `count` units fit and all are in memory.

    None means that some rule needs a closer look. A property test holds the two equal.
    """
    data = queue.read(queue_offset, count)
    if count < 1 or len(data) != count * 20:
        return None
    numbers = _units(count).unpack(data)
    sizes = numbers[1::3]
    total, first, last = sum(sizes), numbers[0], numbers[-3]
    log_end = log.log_end
    if total > bytes_max or first < log.log_start or log_end - first > limits.memory_bytes:
        return None
    span = last + sizes[-1] - first
    window = log.slice(first, span)
    if window is None:  # the records lie in two files, or are gone
        return None
    buffers = [window]
    # Equal sums are not enough: where a message was lost, two units point at the same record.
    if span != total or tuple(accumulate(sizes[:-1], initial=first)) != numbers[0::3]:
        buffers, run_start, run_end = [], 0, 0
        for physical_offset, size in zip(numbers[0::3], sizes, strict=True):
            at = physical_offset - first
            if at != run_end:
                buffers.append(window[run_start:run_end])
                run_start = run_end = at
            run_end += size
        buffers.append(window[run_start:run_end])
    next_offset = queue_offset + count
    return ReadResult(ReadStatus.FOUND, next_offset, queue.min_offset, queue.max_offset, buffers, count, total)


@lru_cache(maxsize=1024)
def _units(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def _outside(queue_offset: int, min_offset: int, max_offset: int, correct_offset: bool) -> ReadResult:
    if max_offset == 0:
        # Java makes a queue when it is first asked for, so an unknown one is an empty one.
        status, next_offset = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    elif queue_offset < min_offset:
        status, next_offset = ReadStatus.OFFSET_TOO_SMALL, min_offset
    elif queue_offset == max_offset:
        status, next_offset = ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset
    else:
        status, next_offset = ReadStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return ReadResult(status, next_offset if correct_offset else queue_offset, min_offset, max_offset)


def store_time(log: LogReader, physical_offset: int, size: int) -> int:
    """When the record was stored, in ms; -1 when the log does not have it."""
    record = log.slice(physical_offset, size) if RECORD_BYTES_MIN <= size < FILL_SIZE else None
    return -1 if record is None else store_timestamp(record)


def store_time_at(queue: ConsumeQueue | BatchConsumeQueue | None, log: LogReader, queue_offset: int) -> int:
    """When the message at `queue_offset` was stored; -1 when the queue or the log does not have it."""
    unit = queue.unit(queue_offset) if queue is not None else None
    return store_time(log, unit.physical_offset, unit.size) if unit is not None else -1


def search_offset(
    queue: ConsumeQueue | BatchConsumeQueue | None, log: LogReader, timestamp_ms: int, *, upper: bool = False
) -> int:
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
