"""Reading through a filter, a block of units at a time.

What it trades: `read._select` is the definition, and examines one unit after the other. Here a filter on tags compares
the codes of a whole block with numpy, so a unit that it refuses costs nothing. A filter on properties gets the
properties of each record from one window on the log. A reader that goes on where the last block ended gets larger
blocks, and what a read leaves of one is kept for the next read (`examined`). What is unusual (records on disk, deleted
or in two segments, placeholders, filter data) returns None, and `_select` decides. A property test holds the two equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from operator import sub
from typing import NamedTuple, Protocol

import numpy as np

from twinlog.store.queues.consume_queue import FILL_SIZE, ConsumeQueue
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX
from twinlog.store.queues.examined import Examined, ExaminedBlocks, Stamp
from twinlog.store.queues.unit_filters import Block, PropertyTest, TagCodes

UNITS_MIN = 24  # fewer are examined faster one by one
GROWTH = 4  # of the next block, for a reader that goes on
AHEAD_UNITS_MIN = 128  # that a reader without a filter is behind, so that a block pays
AHEAD_UNITS_MAX = 512
_TAG_UNITS = 512
_TAG_UNITS_MAX = 2048
_PROPERTY_UNITS = 128  # each record costs
_TABLE_UNITS = 384  # a look at many records costs little more than one at a few
_TABLE_UNITS_MAX = 1024
_COLUMNS = ("physical_offset", "size", "tags_code")
_largest, _smallest = np.maximum.reduce, np.minimum.reduce  # the methods max and min are slower for a short array


class Log(Protocol):
    """What reading needs of the commit log."""

    def window(self, physical_offset: int, size: int) -> memoryview | None: ...

    def need(self, offsets: Sequence[int], sizes: Sequence[int]) -> None: ...


class Room(NamedTuple):
    """When a batch is full, and where its records must lie."""

    examined_end: int  # in the queue
    messages: int
    size: int
    physical_min: int  # of a record that is in the log and in memory


class Selected(NamedTuple):
    """The units that a filter accepted: where their records lie in the log, in its order, and their sizes."""

    next_offset: int
    total: int  # of the sizes
    offsets: list[int]
    sizes: list[int]


def select_blocks(
    queue: ConsumeQueue, log: Log, queue_offset: int, room: Room, wanted: TagCodes | PropertyTest, kept: ExaminedBlocks
) -> Selected | None:
    """What a filtered read from `queue_offset` on returns; None when it must go unit by unit."""
    next_offset, total, physical_min, examined_end = queue_offset, 0, room.physical_min, room.examined_end
    offsets: list[int] = []
    sizes: list[int] = []
    while next_offset < examined_end:
        block = kept.get(queue, wanted.key)
        if block is None or not block.begin <= next_offset < block.end or block.physical_first < physical_min:
            block = _examine(queue, log, next_offset, wanted, kept, block)
            if block is None or block.physical_first < physical_min:
                return None
        physical_min = block.physical_last
        numbers, end = block.numbers, min(block.end, examined_end)
        first = bisect_left(numbers, next_offset)
        last, wanted_last = bisect_left(numbers, end, first), first + room.messages - len(offsets)
        if last >= wanted_last:  # the last of them ends the read
            last, end = wanted_last, numbers[wanted_last - 1] + 1
            examined_end = end
        starts, ends = block.starts[first:last], block.ends[first:last]
        with_block = total + sum(ends) - sum(starts)
        if with_block and with_block + block.size_max > room.size:
            end, last, is_full = _until_full(block, next_offset, end, first, last, total, room.size)
            if is_full:
                examined_end = end
            starts, ends = block.starts[first:last], block.ends[first:last]
        offsets += [block.base + start for start in starts]
        sizes += map(sub, ends, starts)
        total = sum(sizes)
        next_offset = end
    return Selected(next_offset, total, offsets, sizes)


def _until_full(
    block: Examined, next_offset: int, end: int, first: int, last: int, total: int, size_max: int
) -> tuple[int, int, bool]:
    """(where a read that goes on to `end` stops, the first accepted unit that it leaves out, whether it is full).

    Once there is a message, any unit whose record has no room ends the batch, whether the filter accepts it or not.
    """
    for place in range(first, last):
        number, size = block.numbers[place], block.ends[place] - block.starts[place]
        if total:
            stop = _first_above(block, next_offset, number + 1, size_max - total)
            if stop <= number:
                return stop, place, True
        total += size
        next_offset = number + 1
    stop = _first_above(block, next_offset, end, size_max - total) if total else end
    return stop, last, stop < end


def _first_above(block: Examined, next_offset: int, end: int, size_max: int) -> int:
    """The first unit in [next_offset, end) whose record is larger than `size_max`; `end` when there is none."""
    begin = block.begin
    larger = np.flatnonzero(block.unit_sizes[next_offset - begin : end - begin] > size_max)
    return next_offset + int(larger[0]) if len(larger) else end


def look_ahead(queue: ConsumeQueue, begin: int, reader: Hashable, kept: ExaminedBlocks) -> Examined | None:
    """All units from `begin` on, without a filter, for a reader that will go on; None when something is unusual."""
    stamp, before = kept.stamp(queue), kept.get(queue, reader)
    goes_on = before is not None and before.end == begin
    data = queue.read(begin, min(AHEAD_UNITS_MAX if goes_on else AHEAD_UNITS_MIN, queue.max_offset - begin))
    columns = _usual_columns(data)
    if columns is None:
        return None
    block = _examined(begin, stamp, kept.segment_bytes, columns, None, len(columns.offsets))
    kept.put(queue, reader, block)
    return block


def _examine(
    queue: ConsumeQueue,
    log: Log,
    begin: int,
    wanted: TagCodes | PropertyTest,
    kept: ExaminedBlocks,
    before: Examined | None,
) -> Examined | None:
    """The block of units from `begin` on, which is kept; None when something in it is unusual."""
    stamp = kept.stamp(queue)
    goes_on = before is not None and before.end == begin
    units_max = _units_max(wanted, before.end - before.begin if before is not None and goes_on else 0)
    data = queue.read(begin, min(units_max, queue.max_offset - begin))
    block = _usual_columns(data)
    if block is None:
        return None
    accepted = wanted.accepted(block) if isinstance(wanted, TagCodes) else _accepted(wanted, log, block)
    if accepted is None:
        return None
    examined = _examined(begin, stamp, kept.segment_bytes, block, *accepted)
    kept.put(queue, wanted.key, examined)
    return examined


def _usual_columns(data: bytes | bytearray) -> Block | None:
    """The units in `data`, unless there are none, or one is unusual."""
    units = np.frombuffer(data, ConsumeQueue.UNIT_TYPE)
    if not len(units):
        return None
    offsets, sizes, tags_codes = block = Block(*(units[name].astype(np.int64) for name in _COLUMNS))
    if _largest(sizes) == FILL_SIZE or _smallest(sizes) <= 0 or _smallest(tags_codes) <= ADDRESS_MAX:
        return None
    return block if _smallest(offsets[1:] - offsets[:-1], initial=0) >= 0 else None


def _examined(
    begin: int, stamp: Stamp, segment_bytes: int, block: Block, places: np.ndarray | None, count: int
) -> Examined:
    """The first `count` units, of which those at `places` were accepted; None stands for all."""
    offsets, sizes = block.offsets[:count], block.sizes[:count]
    physical_first = int(offsets[0])
    base = physical_first - physical_first % segment_bytes
    starts = offsets - base
    ends = starts + sizes
    return Examined(
        begin,
        begin + count,
        stamp,
        physical_first,
        int(offsets[-1]),
        int(_largest(sizes)),
        sizes,
        range(begin, begin + count) if places is None else (places + begin).tolist(),
        base,
        (starts if places is None else starts[places]).tolist(),
        (ends if places is None else ends[places]).tolist(),
        places is not None,
        bool(_smallest(starts[1:] - ends[:-1], initial=0) >= 0),
    )


def _units_max(wanted: TagCodes | PropertyTest, before: int) -> int:
    """How many units to examine; `before` is the length of a block that this one follows."""
    if isinstance(wanted, TagCodes):
        return min(max(_TAG_UNITS, before * GROWTH), _TAG_UNITS_MAX)
    if wanted.look_at is None:
        return _PROPERTY_UNITS
    return min(max(_TABLE_UNITS, before * GROWTH), _TABLE_UNITS_MAX)


def _accepted(wanted: PropertyTest, log: Log, block: Block) -> tuple[np.ndarray, int] | None:
    """Which units the filter accepts, and how many it has examined; None if the first records are in two segments."""
    count = len(block.offsets)
    while True:
        offsets, sizes, tags_codes = block.offsets[:count], block.sizes[:count], block.tags_codes[:count]
        base = int(offsets[0])
        window = log.window(base, int(offsets[-1] + sizes[-1]) - base)
        if window is not None:
            log.need(offsets.tolist(), sizes.tolist())
            return wanted.accepted(Block(offsets, sizes, tags_codes), window)
        if count < UNITS_MIN:
            return None
        count //= 4  # those before the end of a segment
