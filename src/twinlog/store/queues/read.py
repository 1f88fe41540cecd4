"""Reading messages through a queue: what a pull gets.

A fast path: it runs once per pull, handles units as plain numbers, and returns windows on the mapped log. Records
that lie side by side become one window, so a consumer that keeps up costs one slice per pull.

    read_queue      outside the queue? all units in one piece? else
      _read_blocks  examines blocks of units through a filter (`block_read`), or, where something is unusual,
      _select       units one by one: limits, deleted records, filters
      _windows      slices the log
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from operator import add, eq
from typing import Protocol

import msgspec

from twinlog.store.page_cache import physical_memory_bytes
from twinlog.store.queues.block_read import UNITS_MIN, Room, select_blocks
from twinlog.store.queues.consume_queue import FILL_SIZE, ConsumeQueue
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX, ExtUnit
from twinlog.store.queues.examined import ExaminedBlocks
from twinlog.store.queues.queue_table import Queue
from twinlog.store.queues.unit_filters import ExtTest, PropertyTest, TagCodes

LARGE_BYTES, LARGE_COUNT = 1024 * 1024, 1024  # of one answer to a reader of much
_COPIED_BYTES_MAX = 64 * 1024  # of records that lie apart
_FILTERED_CHUNK = 128  # units read at a time when a filter may refuse many

Accept = Callable[[int | None, ExtUnit | None], bool]
AcceptRecord = Callable[[memoryview], bool]


class LogReader(Protocol):
    """What reading needs of the commit log."""

    @property
    def log_start(self) -> int: ...

    @property
    def log_end(self) -> int: ...

    def slice(self, physical_offset: int, size: int) -> memoryview | None: ...

    def window(self, physical_offset: int, size: int) -> memoryview | None: ...

    def need(self, offsets: Sequence[int], sizes: Sequence[int]) -> None: ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """When a batch is full. Records further than `memory_bytes` behind the log's end count as on disk."""

    bytes_in_memory_max: int = 262_144
    count_in_memory_max: int = 32
    bytes_on_disk_max: int = 65_536
    count_on_disk_max: int = 8
    units_examined_max: int = 800
    memory_bytes: int = 1 << 62

    @property
    def large(self) -> ReadLimits:
        """For a reader of much, who asked for large answers: 1 MiB, wherever the records are."""
        size, count = max(LARGE_BYTES, self.bytes_in_memory_max), max(LARGE_COUNT, self.count_in_memory_max)
        return replace(
            self, bytes_in_memory_max=size, bytes_on_disk_max=size, count_in_memory_max=count, count_on_disk_max=count
        )

    @classmethod
    def of_machine(cls, ratio_percent: int = 40, **limits: int) -> ReadLimits:
        """Limits for this machine's memory (accessMessageInMemoryMaxRatio)."""
        return cls(memory_bytes=physical_memory_bytes() * ratio_percent // 100, **limits)


def read_queue(
    queue: Queue | None,
    log: LogReader,
    queue_offset: int,
    *,
    count_max: int,
    limits: ReadLimits,
    bytes_max: int = 1 << 62,
    accept: Accept | None = None,
    accept_record: AcceptRecord | None = None,
    correct_offset: bool = True,
    kept: ExaminedBlocks | None = None,
) -> ReadResult:
    """Messages from `queue_offset` on, as a pull answers them.

    `accept` decides on the tags code and filter data of a unit, `accept_record` on the record's bytes; `next_offset`
    also moves past what they refuse. The first message is returned even when it is larger than the limits. `kept` has
    what filters found in units that were read before.
    """
    min_offset, max_offset = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
    if queue is None or not min_offset <= queue_offset < max_offset:
        return _outside(queue_offset, min_offset, max_offset, correct_offset)
    count_max = max(1, count_max)
    if accept is accept_record is None and queue.is_plain:
        count = min(count_max, limits.count_in_memory_max, max_offset - queue_offset)
        whole = _read_whole(queue, log, queue_offset, count, min(bytes_max, limits.bytes_in_memory_max), limits)
        if whole is not None:
            return whole
    if isinstance(queue, ConsumeQueue) and queue.is_plain:
        if isinstance(accept, ExtTest):
            accept = None  # this queue has no filter data, so it accepts everything
        wanted = _for_blocks(accept, accept_record)
        if wanted is not None:
            found = _read_blocks(
                queue, log, queue_offset, count_max, bytes_max, limits, wanted, kept or ExaminedBlocks()
            )
            if found is not None:
                return found
    check_each = accept_record is not None
    while True:
        result, runs = _select(
            queue, log, queue_offset, count_max, bytes_max, limits, accept, accept_record, check_each
        )
        windows = _windows(log, runs)
        if windows is not None:
            result.buffers = windows
            return result
        if check_each:  # every record was there when it was checked: retention has deleted one since then
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, result.next_offset, min_offset, max_offset)
        check_each = True  # some record is not in the log: select again, only those that are


def _read_whole(
    queue: Queue, log: LogReader, queue_offset: int, count: int, bytes_max: int,
    limits: ReadLimits,
) -> ReadResult | None:  # fmt: skip
    """The usual case without a loop: all `count` units fit into one read, and all their records are in memory.

    None when one of these is not so, then `_select` decides. A property test holds the two equal.
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
    # Equal sums are not enough: where a message was lost, two units point at the same record.
    in_one_piece = span == total and tuple(accumulate(sizes[:-1], initial=first)) == numbers[0::3]
    window = log.slice(first, span) if in_one_piece else log.window(first, span)
    if window is None:  # the records lie in two files, or are gone
        return None
    buffers = [window]
    if not in_one_piece:
        offsets = numbers[0::3]
        log.need(offsets, sizes)
        if total < _COPIED_BYTES_MAX:  # they are joined to one answer anyway
            buffers = [window[at - first : at - first + size] for at, size in zip(offsets, sizes, strict=True)]
        else:
            buffers = _pieces(window, first, offsets, sizes)
    next_offset = queue_offset + count
    return ReadResult(ReadStatus.FOUND, next_offset, queue.min_offset, queue.max_offset, buffers, count, total)


def _pieces(window: memoryview, first: int, offsets: Sequence[int], sizes: Sequence[int]) -> list[memoryview]:
    """Windows on these records, of which the log has the first at `first`; those side by side are one piece."""
    pieces: list[memoryview] = []
    run_start = run_end = 0
    for physical_offset, size in zip(offsets, sizes, strict=True):
        at = physical_offset - first
        if at != run_end:
            pieces.append(window[run_start:run_end])
            run_start = run_end = at
        run_end += size
    pieces.append(window[run_start:run_end])
    return pieces


@lru_cache(maxsize=1024)
def _units(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def _for_blocks(accept: Accept | None, accept_record: AcceptRecord | None) -> TagCodes | PropertyTest | None:
    """The filter of a read, if it is one that examines a block of units at once."""
    if isinstance(accept, TagCodes):
        return accept if accept_record is None and accept.goes_in_blocks else None
    return accept_record if accept is None and isinstance(accept_record, PropertyTest) else None


def block_key(accept: Accept | None, accept_record: AcceptRecord | None) -> Hashable | None:
    """Under which key blocks that were examined with this filter are kept; None if it examines units one by one."""
    wanted = _for_blocks(None if isinstance(accept, ExtTest) else accept, accept_record)
    return None if wanted is None else wanted.key


def _read_blocks(
    queue: ConsumeQueue, log: LogReader, queue_offset: int, count_max: int, bytes_max: int, limits: ReadLimits,
    wanted: TagCodes | PropertyTest, kept: ExaminedBlocks,
) -> ReadResult | None:  # fmt: skip
    """What a filter accepts, if all units are usual and their records in memory; None when `_select` must decide."""
    min_offset, max_offset = queue.min_offset, queue.max_offset
    examined_end = min(max_offset, queue_offset + max(limits.units_examined_max, count_max))
    if examined_end - queue_offset < UNITS_MIN:
        return None
    room = Room(
        examined_end,
        min(count_max, limits.count_in_memory_max),
        min(bytes_max, limits.bytes_in_memory_max),
        max(log.log_start, log.log_end - limits.memory_bytes),
    )
    found = select_blocks(queue, log, queue_offset, room, wanted, kept)
    if found is None:
        return None
    next_offset, total, offsets, sizes = found
    if not total:
        return ReadResult(ReadStatus.NO_MATCHED_MESSAGE, next_offset, min_offset, max_offset)
    first = offsets[0]
    window = log.window(first, offsets[-1] + sizes[-1] - first)
    if window is None:  # the records lie in two files, or are gone
        windows = _windows(log, list(_runs(offsets, sizes)))
        if windows is None:
            return None
    else:
        log.need(offsets, sizes)
        windows = [window[begin - first : end - first] for begin, end in _runs(offsets, sizes)]
    return ReadResult(ReadStatus.FOUND, next_offset, min_offset, max_offset, windows, len(offsets), total)


def _runs(offsets: list[int], sizes: list[int]) -> Iterable[tuple[int, int]]:
    """Where records begin and end, those side by side together."""
    ends = list(map(add, offsets, sizes))
    if not any(map(eq, ends, offsets[1:])):
        return zip(offsets, ends, strict=True)
    begins = [begin for begin, before in zip(offsets, [-1, *ends], strict=False) if begin != before]
    return zip(begins, [end for end, after in zip(ends, [*offsets[1:], -1], strict=True) if end != after], strict=True)


def _select(
    queue: Queue, log: LogReader, queue_offset: int, count_max: int, bytes_max: int, limits: ReadLimits,
    accept: Accept | None, accept_record: AcceptRecord | None, check_each: bool,
) -> tuple[ReadResult, list[tuple[int, int]]]:  # fmt: skip
    """The result without its buffers, and the runs of records side by side, as (begin, end) in the log.

    `check_each` leaves out records that the log does not have. The loop runs for each unit that a pull examines, so
    it works on local variables and calls little but the filters.
    """
    min_offset, max_offset, log_start, log_end = queue.min_offset, queue.max_offset, log.log_start, log.log_end
    on_disk_below = log_end - limits.memory_bytes
    in_memory = min(bytes_max, limits.bytes_in_memory_max), limits.count_in_memory_max
    on_disk = min(bytes_max, limits.bytes_on_disk_max), limits.count_on_disk_max
    examined_end = min(max_offset, queue_offset + max(limits.units_examined_max, count_max))
    chunk = min(count_max, limits.count_in_memory_max) if accept is accept_record is None else _FILTERED_CHUNK
    next_offset, newest, total, count, full = queue_offset, 0, 0, 0, False
    status = ReadStatus.NO_MATCHED_MESSAGE
    runs: list[tuple[int, int]] = []
    run_begin = run_end = 0
    while not full and next_offset < examined_end:
        chunk_start = next_offset
        for (physical_offset, size, tags_code), after, number in queue.scan(next_offset, chunk):
            bytes_room, count_room = on_disk if physical_offset < on_disk_below else in_memory
            if (total and (total + size > bytes_room or count >= count_room or count + number > count_max)) or (
                after - number >= examined_end
            ):
                full = True
                break
            next_offset, newest = after, physical_offset
            if physical_offset < log_start or size == FILL_SIZE or size <= 0:
                if not total:
                    status = ReadStatus.MESSAGE_WAS_REMOVING
                continue
            if accept is not None and not (
                accept(tags_code, None) if tags_code > ADDRESS_MAX else _accept_ext(queue, tags_code, accept)
            ):
                continue
            if check_each:
                record = log.slice(physical_offset, size)
                if record is None or (accept_record is not None and not accept_record(record)):
                    continue
            if physical_offset == run_end:
                run_end += size
            else:
                runs.append((run_begin, run_end))
                run_begin, run_end = physical_offset, physical_offset + size
            total += size
            count += number
        if next_offset == chunk_start and not full:  # these units were deleted after `max_offset` was read
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, queue.next_file(next_offset), min_offset, max_offset), []
    runs.append((run_begin, run_end))
    status = ReadStatus.FOUND if total else status
    far_behind = log_end - newest > limits.memory_bytes
    return ReadResult(status, next_offset, min_offset, max_offset, [], count, total, far_behind), runs


def _accept_ext(queue: Queue, address: int, accept: Accept) -> bool:
    """What `accept` decides on the filter data at `address`; on None when that is gone."""
    ext = queue.ext_unit(address)
    return accept(ext.tags_code if ext is not None else None, ext)


def _windows(log: LogReader, runs: list[tuple[int, int]]) -> list[memoryview] | None:
    """One window on the log for each run that is not empty; None when the log does not have all of them."""
    windows = []
    for begin, end in runs:
        if begin < end:
            window = log.slice(begin, end - begin)
            if window is None:
                return None
            windows.append(window)
    return windows


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
