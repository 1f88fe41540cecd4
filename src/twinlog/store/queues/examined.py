"""What filters have found in blocks of units, kept for the next read of the same queue.

A consumer reads a queue in sequence, and a block has more units than one read examines. The next read goes on in the
block instead of examining it again. Nothing depends on it: what is not kept is examined, and gives the same result.

    queue, filter  ->  the block examined last, with the accepted units as lists

A block is valid as long as the queue has changed by appends only (`UnitQueue.changes`) and the records of the block
have not been written again, as a repair does (`ExaminedBlocks.clear`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np

    from twinlog.store.queues.consume_queue import ConsumeQueue

_UNITS_MAX = 128 * 1024  # accepted units that are kept, of all blocks: up to 16 MB


class Stamp(NamedTuple):
    """What a block was made from."""

    changes: int  # of the queue
    clears: int  # of all blocks


class Examined(NamedTuple):
    """The units [begin, end) of a queue, and those among them that a filter accepts."""

    begin: int
    end: int
    stamp: Stamp
    physical_first: int  # the units are in the order of the log
    physical_last: int
    size_max: int  # of a record
    unit_sizes: np.ndarray  # of all units
    numbers: Sequence[int]  # in the queue, of the accepted units
    base: int  # where the segment begins in which the first record lies
    starts: list[int]  # of the accepted records, from `base` on
    ends: list[int]
    is_filtered: bool
    is_apart: bool  # no two units stand for the same record


class ExaminedBlocks:
    """The last block of each queue and filter, as long as there is room.

    A thread that reads from disk uses it at the same time as the loop, so a stamp is taken before anything is read.
    """

    __slots__ = ("_blocks", "_clears", "_units", "segment_bytes")

    def __init__(self, segment_bytes: int = 1 << 62) -> None:
        self.segment_bytes = segment_bytes
        self._blocks: dict[tuple[ConsumeQueue, Hashable], Examined] = {}
        self._clears = 0
        self._units = 0

    def stamp(self, queue: ConsumeQueue) -> Stamp:
        return Stamp(queue.changes, self._clears)

    def get(self, queue: ConsumeQueue, wanted: Hashable) -> Examined | None:
        block = self._blocks.get((queue, wanted))
        return block if block is not None and block.stamp == (queue.changes, self._clears) else None

    def put(self, queue: ConsumeQueue, wanted: Hashable, block: Examined) -> None:
        before = self._blocks.get((queue, wanted))
        self._units += _units(block) - (0 if before is None else _units(before))
        if self._units > _UNITS_MAX:
            self._blocks.clear()
            self._units = _units(block)
        self._blocks[queue, wanted] = block

    def clear(self) -> None:
        """Forget everything: records were written again."""
        self._clears += 1
        self._blocks.clear()
        self._units = 0


def _units(block: Examined) -> int:
    return len(block.numbers) + len(block.unit_sizes) // 8
