"""Two ways to read the mapped log beside an event loop: without the disk, and with it.

A page of the log that is not in memory costs a page fault, and Python keeps its interpreter lock meanwhile: the whole
process waits for the disk. So whoever runs a loop reads in two steps:

    MemoryLog   in the loop: raises OnDisk for bytes that are not in memory, and touches none of them
    DiskLog     in a worker thread: reads the bytes in system calls, which release the lock; they are in memory then

Both offer what a read needs of a commit log (`LogReader`), so that the same code runs in the loop and in the thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import gcd
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from twinlog.store.errors import OnDisk, StoreClosed
from twinlog.store.page_cache import bytes_in_memory, physical_memory_bytes, read_through

if TYPE_CHECKING:
    from twinlog.store.log.commit_log import CommitLog

# What this process wrote last is in memory, unless others need nearly all of it: it is not asked for each read.
RECENT_BYTES = max(128 << 20, min(1 << 30, physical_memory_bytes() // 16))
_RECORD_BYTES = 4096
_CHUNK_BYTES = 64 * 1024
_APART_BYTES = 8 * 1024  # a read whose records lie closer together, on average, looks for whole chunks
_CHUNK_UNITS = 2048
_CHUNKS_MAX = 1 << 16
TRUSTED_S = 2.0
_INT = struct.Struct(">i")


class Units(Protocol):
    """What is asked of a queue."""

    def in_memory(self, unit: int, count: int) -> bool: ...


class LogAccess:
    """The log as a read sees it; `slice` decides what happens to bytes that are on disk only."""

    __slots__ = ("_log",)
    is_old = False  # whether a record was asked for that this process did not write lately: see `checked_log`

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    @property
    def commit_log(self) -> CommitLog:
        return self._log

    @property
    def log_start(self) -> int:
        return self._log.log_start

    @property
    def log_end(self) -> int:
        return self._log.log_end

    def slice(self, physical_offset: int, size: int) -> memoryview | None:
        """`size` bytes without copying; None when they are not all in one segment of the log."""
        window = self.window(physical_offset, size)
        if window is not None:
            self._need(physical_offset, size)
        return window

    def window(self, physical_offset: int, size: int) -> memoryview | None:
        """As `slice`, but of these bytes only those are read for which `need` is called."""
        try:
            return self._log.slice(physical_offset, size)
        except StoreClosed:  # retention has just deleted the segment
            return None

    def need(self, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """These records are read next; those side by side count as one piece."""
        begin = end = 0
        for physical_offset, size in zip(offsets, sizes, strict=True):
            if physical_offset != end:
                if begin < end:
                    self._need(begin, end - begin)
                begin = physical_offset
            end = physical_offset + size
        self._need(begin, end - begin)

    def _need(self, physical_offset: int, size: int) -> None:
        raise NotImplementedError

    def record(self, physical_offset: int) -> memoryview | None:
        """The record that begins at this offset, by its own size field; None when there is none."""
        head = self.slice(physical_offset, 4)
        return None if head is None else self.slice(physical_offset, _INT.unpack(head)[0])

    def check_units(self, queue: Units, queue_offset: int, count: int) -> None:
        """Called before `count` units of `queue` are read."""


class SeenChunks:
    """Parts of log and queues that were in memory a moment ago: they are not asked for again.

    Each part of the log has records of many queues, and to ask for each record would cost more than to read it.
    """

    __slots__ = ("_found", "_trusted_until", "size")

    def __init__(self, segment_size: int) -> None:
        self.size = gcd(segment_size, _CHUNK_BYTES)  # so that each lies in one segment
        self._found: set[int | tuple[Units, int]] = set()
        self._trusted_until = 0.0

    def found(self) -> set[int | tuple[Units, int]]:
        """Where a chunk of the log begins, or a queue and the number of a chunk; whoever finds another adds it."""
        now = monotonic()
        if now >= self._trusted_until or len(self._found) >= _CHUNKS_MAX:
            self._found.clear()
            self._trusted_until = now + TRUSTED_S
        return self._found


class MemoryLog(LogAccess):
    """For one read in the loop. What lies behind `recent_from` was written by this process, lately."""

    __slots__ = ("_chunk_bytes", "_end", "_recent_from", "_seen", "is_old")

    def __init__(self, log: CommitLog, recent_from: int, seen: SeenChunks) -> None:
        self._log = log
        self._recent_from = recent_from
        self.is_old = False
        self._seen, self._chunk_bytes = seen.found(), seen.size
        self._end = -_CHUNK_BYTES  # of the record that was asked for last

    def need(self, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        begin = offsets[0]
        if begin >= self._recent_from:  # a queue's records grow with its offsets
            return
        self.is_old = True
        end, step = offsets[-1] + sizes[-1], self._chunk_bytes
        if end - begin <= len(offsets) * _APART_BYTES:
            if not self._has_chunks(begin, end, look=True):
                super().need(offsets, sizes)
            return
        # Far apart: those in chunks that were seen lately are asked for together.
        chunks = {at // step for at in offsets}
        chunks.update((at + size - 1) // step for at, size in zip(offsets, sizes, strict=True))
        if max(sizes) > step or not self._seen.issuperset(chunk * step for chunk in chunks):
            super().need(offsets, sizes)

    def _need(self, physical_offset: int, size: int) -> None:
        end = physical_offset + size
        if physical_offset >= self._recent_from:
            return
        self.is_old = True
        # A filter reads record after record: the next ones are looked for at the same time.
        look = size >= _APART_BYTES or 0 <= physical_offset - self._end < _CHUNK_BYTES
        self._end = end
        if self._has_chunks(physical_offset, end, look=look):
            return
        segment = self._log.segment_at(physical_offset)
        if segment and bytes_in_memory(segment.descriptor, physical_offset - segment.base, size) < size:
            raise OnDisk

    def _has_chunks(self, begin: int, end: int, *, look: bool) -> bool:
        """Whether all chunks from `begin` to `end` are in memory; those not seen lately only count if we may look."""
        seen, step = self._seen, self._chunk_bytes
        for chunk in range(begin - begin % step, end, step):
            if chunk not in seen:
                if not look or not self._find(chunk, step):
                    return False
                seen.add(chunk)
        return True

    def _find(self, chunk: int, size: int) -> bool:
        segment = self._log.segment_at(chunk)
        if segment is None:
            return False
        size = min(size, self._log.log_end - chunk)
        return bytes_in_memory(segment.descriptor, chunk - segment.base, size) >= size

    def check_units(self, queue: Units, queue_offset: int, count: int) -> None:
        seen = self._seen
        for number in range(queue_offset // _CHUNK_UNITS, (queue_offset + count - 1) // _CHUNK_UNITS + 1):
            if (queue, number) not in seen:
                if not queue.in_memory(number * _CHUNK_UNITS, _CHUNK_UNITS):
                    break
                seen.add((queue, number))
        else:
            return
        if not queue.in_memory(queue_offset, count):
            raise OnDisk


class DiskLog(LogAccess):
    """For the reads of one request, in a worker thread."""

    __slots__ = ("_begin", "_end")
    is_old = True

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log)
        self._begin = self._end = 0  # what was read last

    def record(self, physical_offset: int) -> memoryview | None:
        self._need(physical_offset, _RECORD_BYTES)  # its size is not known yet, and most are not larger
        return super().record(physical_offset)

    def bring_in(self, physical_offset: int, size: int) -> None:
        """Wait until these bytes are in memory, as far as the log has them."""
        for segment, first, last in self._log.ranges(physical_offset, physical_offset + size):
            read_through(segment.descriptor, first, last - first)

    def _need(self, physical_offset: int, size: int) -> None:
        end = physical_offset + size
        if not self._begin <= physical_offset <= end <= self._end:
            self.bring_in(physical_offset, size)
            self._begin, self._end = physical_offset, end
