"""The consume queue: for each message of one topic and queue id, where its record lies in the log.

    0                 8        12          20
    | physical offset | size   | tags code |        unit number = queue offset

The first unit whose physical offset is negative or whose size is not positive ends the data. A queue whose
history starts at offset k > 0 (a replica that joined late) begins with units (0, 0x7FFFFFFF, 0) up to k in
its first file; these hold a place and are never messages.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.file_pool import FilePool
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX, ConsumeQueueExt, ExtUnit
from twinlog.store.queues.unit_queue import UnitQueue
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)

_UNIT = struct.Struct(">qiq")
pack_unit = _UNIT.pack
unpack_units = _UNIT.iter_unpack
FILL_SIZE = 0x7FFFFFFF
PLACEHOLDER = _UNIT.pack(0, FILL_SIZE, 0)
_LOOK_BACK_UNITS = 4096
GAP_UNITS_MAX = 4096  # a larger gap is a wrong number rather than lost records


def pack_units(physical_offsets: Sequence[int], sizes: Sequence[int], tags_codes: Sequence[int]) -> bytes:
    """The units of several messages, in one piece."""
    fields = [0] * (3 * len(sizes))
    fields[0::3], fields[1::3], fields[2::3] = physical_offsets, sizes, tags_codes
    return struct.pack(">" + "qiq" * len(sizes), *fields)


class Unit(NamedTuple):
    """Where one message is. In a queue of batches it stands for `batch_size` messages from `queue_offset` on."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None  # None: the filter data it points to is gone, so it cannot be filtered by
    batch_size: int = 1
    ext: ExtUnit | None = None


class ConsumeQueue(UnitQueue):
    """One queue of one topic.

    Invariant: `end_physical` is where the newest record in the queue ends, and a record that ends at or
    before it is in the queue already. So the log may dispatch the same records again.
    """

    __slots__ = ("end_physical", "ext", "is_plain", "min", "min_physical", "queue_id", "topic")

    kind = "SimpleCQ"
    UNIT = _UNIT
    UNIT_BYTES = 20
    UNIT_TYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    SIZE_SETTING = "mappedFileSizeConsumeQueue"

    def __init__(
        self, files: FilePool, directory: str, file_bytes: int, topic: str, queue_id: int, ext: ConsumeQueueExt | None
    ) -> None:
        super().__init__(files, directory, file_bytes)
        self.topic = topic
        self.queue_id = queue_id
        self.ext = ext
        self.is_plain = ext is None
        self.min = 0
        self.min_physical = -1  # where the record at `min` begins; -1 while unknown
        self.end_physical = 0

    @property
    def min_offset(self) -> int:
        return self.min

    @property
    def max_offset(self) -> int:
        return self.end

    def put(self, request: DispatchRequest) -> None:
        """Add one record; the caller holds `files.lock`. `QueueTable.dispatch` has the usual case inlined."""
        physical_offset, size, queue_offset = request.physical_offset, request.size, request.queue_offset
        if physical_offset + size <= self.end_physical:
            return
        tags_code = request.tags_code
        if queue_offset != self.end and not self._make_room(request):
            return
        if self.ext is not None:
            tags_code = self.ext.put(tags_code, request.store_timestamp, request.bitmap or b"")
        self.tail += pack_unit(physical_offset, size, tags_code)
        self.end += 1
        self.end_physical = physical_offset + size

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit of one message, None when the queue does not hold it."""
        return next(self.units(queue_offset, 1), None)

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """Up to `count` units from `queue_offset` on; placeholders are left out."""
        if queue_offset < self.min:
            return
        for number, (physical_offset, size, tags_code) in enumerate(
            unpack_units(self.read(queue_offset, count)), queue_offset
        ):
            if size == FILL_SIZE:
                continue
            ext = None
            if tags_code <= ADDRESS_MAX:
                ext = self.ext_unit(tags_code)
                tags_code = ext.tags_code if ext is not None else None
            yield Unit(number, physical_offset, size, tags_code, 1, ext)

    def scan(self, queue_offset: int, count: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
        """((physical offset, size, raw tags code), offset after it, number of messages) for up to `count` units."""
        after = queue_offset + 1
        return zip(unpack_units(self.read(queue_offset, count)), range(after, after + count), repeat(1), strict=False)

    def ext_unit(self, address: int) -> ExtUnit | None:
        """What a tags code that is an address points to; None when the extension is off or gone."""
        return self.ext.get(address) if self.ext is not None else None

    def physical_offset(self, queue_offset: int) -> int:
        """Where the message's record begins; -1 for a placeholder or a unit that is gone."""
        data = self.read(queue_offset, 1)
        if not data:
            return -1
        physical_offset, size, _ = _UNIT.unpack(data)
        return physical_offset if size != FILL_SIZE else -1

    def next_file(self, queue_offset: int) -> int:
        """The queue offset at which the next file begins."""
        return (queue_offset // self.file_units + 1) * self.file_units

    def recover(self, *, thorough: bool = True) -> None:
        super().recover(thorough=thorough)
        self._find_edges()
        if self.ext is not None:
            self.ext.recover(thorough=thorough)
            self._cut_ext()

    def write(self) -> None:
        """Write the tail; what it points to in the extension goes first."""
        if self.ext is not None:
            self.ext.write()
        super().write()

    def delete(self) -> None:
        super().delete()
        self.min, self.min_physical, self.end_physical = 0, -1, 0
        if self.ext is not None:
            self.ext.delete()

    def correct_min(self, log_start: int) -> None:
        """Raise `min` to the first unit whose record the log still has; with none left, min = max."""
        if self.min_physical >= log_start or self.min == self.end:
            return
        self.min_physical = self.physical_offset(self.min)
        if self.min_physical < log_start:
            self.min, self.min_physical = self.find(log_start, self.min), -1
            if self.ext is not None and (data := self.read(self.min, 1)):
                self.ext.delete_files_below(_UNIT.unpack(data)[2])

    def truncate_after(self, log_end: int) -> None:
        """Remove the units of records at or beyond `log_end`."""
        if self.end_physical <= log_end:
            return
        with self.files.writing:
            self.cut(self.find(log_end, self.min))
            self._find_edges()
            self._cut_ext()

    def delete_expired(self, log_start: int) -> int:
        """Delete the files whose last unit points below `log_start`; returns how many went."""
        self.correct_min(log_start)
        return self.delete_files_below(self.min)

    def find(self, physical_offset: int, low: int) -> int:
        """The first unit at or after `low` whose record begins at or after `physical_offset`."""
        return bisect_left(range(self.end), physical_offset, lo=low, key=self.physical_offset)

    def _make_room(self, request: DispatchRequest) -> bool:
        """Handle a record that is not the queue's next one; False when the queue has it already."""
        queue_offset = request.queue_offset
        if self.end == self.first and self.min == self.end:  # no unit yet: history starts here
            start = queue_offset - queue_offset % self.file_units
            if start != self.first:
                self.files.remove(self.path_of(self.first))  # an empty file would stand before a hole
            self.first = self.written = start
            self.min = self.end = queue_offset
            self._fill(start, queue_offset)
            return True
        if queue_offset < self.end:
            return False
        gap = queue_offset - self.end
        lost = gap <= GAP_UNITS_MAX
        log.error(
            "queue out of order: records are lost, their places point at this one"
            if lost
            else "queue out of order: written at the expected place",
            topic=self.topic,
            queue_id=self.queue_id,
            expected=self.end,
            found=queue_offset,
            physical_offset=request.physical_offset,
        )
        if lost:
            # Java gives later messages lower offsets, and consumers skip some that they have not seen. Here offsets
            # stay true, and a consumer that reads the place of a lost message gets the message after it.
            self.tail += pack_unit(request.physical_offset, request.size, request.tags_code) * gap
            self.end += gap
        return True

    def _fill(self, start: int, end: int) -> None:
        """Put placeholders into units [start, end) of a new file: up to 6 MB, so not by way of the tail if possible."""
        fill = PLACEHOLDER * (end - start)
        try:
            if fill:
                self.files.write(self.path_of(start), fill, 0, self.file_bytes)
            self.written = end
        except OSError:  # if it lasts, the next write of the tail raises it
            self.tail[:] = fill

    def _find_edges(self) -> None:
        """Set `min` behind the placeholders and `end_physical` behind the last record."""
        last = self.read(self.end - 1, 1) if self.end > self.first else b""
        physical_offset, size, _ = _UNIT.unpack(last) if last else (0, 0, 0)
        self.end_physical = physical_offset + size if size != FILL_SIZE else 0
        if not self.first <= self.min <= self.end:
            self.min = self.first
        self.min_physical = -1
        if self.min < self.end:
            self.min_physical = self.physical_offset(self.min) if self.end - self.min > 1 else physical_offset
            if self.min_physical < 0 or size == FILL_SIZE:
                file_end = min(self.end, self.next_file(self.min))
                self.min = bisect_left(range(file_end), 0, lo=self.min, key=self.physical_offset)
                self.min_physical = -1

    def _cut_ext(self) -> None:
        """End the extension behind the unit that the newest address in the queue points to."""
        if self.ext is None or self.end == self.min:
            return
        start = max(self.min, self.end - _LOOK_BACK_UNITS)
        units = list(unpack_units(self.read(start, self.end - start)))
        for _, _, tags_code in reversed(units):
            if tags_code <= ADDRESS_MAX:
                self.ext.cut_after(tags_code)
                return
