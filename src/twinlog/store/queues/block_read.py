"""Reading through a filter, a block of units at a time.

What it trades: `read._select` is the definition, and examines one unit after the other. Here a filter on tags compares
the codes of a whole block with numpy, so a unit that it refuses costs nothing. A filter on properties gets the
properties of each record from one window on the log. What is unusual (records on disk, deleted or in two segments,
placeholders, filter data) returns None, and `_select` decides. A property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from twinlog.store.queues.consume_queue import FILL_SIZE, ConsumeQueue
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX
from twinlog.store.queues.unit_filters import Accepted, Block, PropertyTest, TagCodes

UNITS_MIN = 24  # fewer are examined faster one by one
_TAG_UNITS = 512
_PROPERTY_UNITS = 128  # each record costs, and the batch may be full after a few
_TABLE_UNITS = 384  # a look at many records costs little more than one at a few
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
    """The units that a filter accepted; the records of a run stand side by side, from `begin` to `end` in the log."""

    next_offset: int
    messages: int
    size: int
    runs: list[tuple[int, int]]


def select_blocks(
    queue: ConsumeQueue, log: Log, queue_offset: int, room: Room, wanted: TagCodes | PropertyTest
) -> Selected | None:
    """What a filtered read from `queue_offset` on returns; None when it must go unit by unit."""
    next_offset, total, count, physical_min = queue_offset, 0, 0, room.physical_min
    block_units = _block_units(wanted)
    runs: list[tuple[int, int]] = []
    run_begin = run_end = 0
    while next_offset < room.examined_end:
        units_max = min(block_units, room.examined_end - next_offset)
        data = queue.read(next_offset, units_max)
        if len(data) != units_max * ConsumeQueue.UNIT_BYTES:
            return None
        units = np.frombuffer(data, ConsumeQueue.UNIT_TYPE)
        offsets, sizes, tags_codes = block = Block(*(units[name].astype(np.int64) for name in _COLUMNS))
        size_max = int(_largest(sizes))
        if size_max == FILL_SIZE or _smallest(sizes) <= 0 or _smallest(tags_codes) <= ADDRESS_MAX:
            return None
        if offsets[0] < physical_min or _smallest(offsets[1:] - offsets[:-1], initial=0) < 0:
            return None
        physical_min = int(offsets[-1])
        accepted = _accepted(wanted, log, block)
        if accepted is None:
            return None
        passed = 0  # units of this block
        for place, begin, size in accepted:
            if total and total + size_max > room.size:
                stop = _first_above(sizes, passed, place + 1, room.size - total)
                if stop <= place:
                    runs.append((run_begin, run_end))
                    return Selected(next_offset + stop, count, total, runs)
            passed = place + 1
            if begin == run_end:
                run_end += size
            else:
                runs.append((run_begin, run_end))
                run_begin, run_end = begin, begin + size
            total += size
            count += 1
            if count >= room.messages:
                runs.append((run_begin, run_end))
                return Selected(next_offset + passed, count, total, runs)
        if total and total + size_max > room.size:
            stop = _first_above(sizes, passed, units_max, room.size - total)
            if stop < units_max:
                next_offset += stop
                break
        next_offset += units_max
    runs.append((run_begin, run_end))
    return Selected(next_offset, count, total, runs)


def _block_units(wanted: TagCodes | PropertyTest) -> int:
    if isinstance(wanted, TagCodes):
        return _TAG_UNITS
    return _PROPERTY_UNITS if wanted.may_match is None else _TABLE_UNITS


def _accepted(wanted: TagCodes | PropertyTest, log: Log, block: Block) -> Iterable[Accepted] | None:
    """The units of this block that the filter accepts; None when their records are not in one segment of the log."""
    if isinstance(wanted, TagCodes):
        return wanted.accepted(block)
    offsets, sizes, _ = block
    base = int(offsets[0])
    window = log.window(base, int(offsets[-1] + sizes[-1]) - base)
    if window is None:
        return None
    log.need(offsets.tolist(), sizes.tolist())
    return wanted.accepted(block, window)


def _first_above(sizes: np.ndarray, begin: int, end: int, size_max: int) -> int:
    """The first place in [begin, end) whose record is larger than `size_max`; `end` when there is none."""
    larger = np.flatnonzero(sizes[begin:end] > size_max)
    return begin + int(larger[0]) if len(larger) else end
