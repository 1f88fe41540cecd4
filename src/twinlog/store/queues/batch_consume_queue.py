"""The queue of a BatchCQ topic: one unit for each record, which may hold several messages.

    0                 8      12          20           28            36           38                 42
    | physical offset | size | tags code | store time | base offset | batch size | compacted offset | reserved | 46

A message's queue offset is found by search: its unit is the last one whose base offset is not above it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.file_pool import FilePool
from twinlog.store.queues.consume_queue import Unit
from twinlog.store.queues.unit_queue import UnitQueue

_UNIT = struct.Struct(">qiqqqhii")
_NOT_COMPACTED = -1
_RECENT_MESSAGES = 4096


class BatchConsumeQueue(UnitQueue):
    """One queue of a topic whose producers' batches are stored whole.

    Invariant: base offsets and physical offsets both grow from unit to unit.
    """

    __slots__ = ("end_physical", "last_physical", "max_offset", "min_offset", "min_unit", "queue_id", "topic")

    kind = "BatchCQ"
    is_plain = False
    UNIT = _UNIT
    UNIT_BYTES = 46
    UNIT_TYPE = np.dtype(
        [
            ("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_time", ">i8"),
            ("base_offset", ">i8"), ("batch_size", ">i2"), ("compacted_offset", ">i4"), ("reserved", ">i4"),
        ]
    )  # fmt: skip
    SIZE_SETTING = "mapperFileSizeBatchConsumeQueue"

    def __init__(self, files: FilePool, directory: str, file_bytes: int, topic: str, queue_id: int) -> None:
        super().__init__(files, directory, file_bytes)
        self.topic = topic
        self.queue_id = queue_id
        self.min_unit = self.min_offset = self.max_offset = 0
        self.end_physical = 0
        self.last_physical = -1

    def put(self, request: DispatchRequest) -> None:
        """Add one record; the caller holds `files.lock`."""
        if request.physical_offset <= self.last_physical:
            return
        self.tail += _UNIT.pack(
            request.physical_offset, request.size, request.tags_code, request.store_timestamp,
            request.queue_offset, request.batch_size, _NOT_COMPACTED, 0,
        )  # fmt: skip
        if self.end == self.min_unit:
            self.min_offset = request.queue_offset
        self.end += 1
        self.last_physical = request.physical_offset
        self.end_physical = request.physical_offset + request.size
        self.max_offset = request.queue_offset + request.batch_size

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit that holds one message, None when the queue does not have it."""
        return next(self.units(queue_offset, 1), None)

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """Up to `count` units, from the one that holds `queue_offset` on."""
        for (physical_offset, size, tags_code), after, number in self.scan(queue_offset, count):
            yield Unit(after - number, physical_offset, size, tags_code, number)

    def scan(self, queue_offset: int, count: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
        """((physical offset, size, tags code), offset after it, number of messages) for up to `count` units."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return
        start = bisect_right(range(self.end), queue_offset, lo=self.min_unit, key=self._base_offset) - 1
        for unit in _UNIT.iter_unpack(self.read(max(start, self.min_unit), count)):
            physical_offset, size, tags_code, _, base_offset, batch_size, _, _ = unit
            yield (physical_offset, size, tags_code), base_offset + batch_size, batch_size

    def in_memory(self, unit: int, count: int) -> bool:
        """Whether the unit of a queue offset can be searched without waiting for the disk: true of recent ones."""
        return self.max_offset - unit <= _RECENT_MESSAGES

    def ext_unit(self, address: int) -> None:
        """Batches have no filter data."""

    def next_file(self, queue_offset: int) -> int:
        """The next queue offset to try when a unit was deleted."""
        return max(queue_offset + 1, self.min_offset)

    def recover(self, *, thorough: bool = True) -> None:
        super().recover(thorough=thorough)
        self.min_unit = self.first
        self._find_edges()

    def correct_min(self, log_start: int) -> None:
        """Raise the min offset to the first record that the log still has; with none left, min = max."""
        if self.min_unit < self.end and self._physical_offset(self.min_unit) < log_start:
            self.min_unit = bisect_left(range(self.end), log_start, lo=self.min_unit, key=self._physical_offset)
            self._find_edges()

    def truncate_after(self, log_end: int) -> None:
        """Remove the units of records at or beyond `log_end`."""
        if self.end_physical <= log_end:
            return
        with self.files.writing:
            self.cut(bisect_left(range(self.end), log_end, lo=self.min_unit, key=self._physical_offset))
            self._find_edges()

    def delete_expired(self, log_start: int) -> int:
        """Delete the files whose last unit points below `log_start`; returns how many went."""
        self.correct_min(log_start)
        return self.delete_files_below(self.min_unit)

    def delete(self) -> None:
        super().delete()
        self.min_unit = self.min_offset = self.max_offset = self.end_physical = 0
        self.last_physical = -1

    def _is_good(self, unit: tuple[int, ...]) -> bool:
        return unit[0] >= 0 and unit[1] > 0 and unit[4] >= 0 and unit[5] > 0

    @staticmethod
    def good(units: np.ndarray) -> np.ndarray:
        return UnitQueue.good(units) & (units["base_offset"] >= 0) & (units["batch_size"] > 0)

    def _base_offset(self, unit: int) -> int:
        return struct.unpack_from(">q", self.read(unit, 1), 28)[0]

    def _physical_offset(self, unit: int) -> int:
        return struct.unpack_from(">q", self.read(unit, 1))[0]

    def _find_edges(self) -> None:
        """Set the offsets from the first and last unit. A queue cut to nothing keeps its max offset."""
        if self.end == self.first:
            self.end_physical, self.last_physical = 0, -1
            self.max_offset = self.min_offset = 0
            return
        physical_offset, size, _, _, base_offset, batch_size, _, _ = _UNIT.unpack(self.read(self.end - 1, 1))
        self.last_physical, self.end_physical = physical_offset, physical_offset + size
        self.max_offset = base_offset + batch_size
        self.min_offset = self._base_offset(self.min_unit) if self.min_unit < self.end else self.max_offset
