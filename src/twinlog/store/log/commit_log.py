"""The commit log: segments in a row, one end that grows.

    log_start                      flushed_end        log_end
    | segment | segment | segment ......|...............|        | next segment, allocated ahead |

One thread (the event loop's) writes; any thread may read or call `flush`. `flushed_end` is
how far `fdatasync` has returned. The segment after the last one is allocated by a worker thread as soon as
half of the last one is used, and disappears at a clean close if it was never needed.

With several directories in storePathCommitLog, segment number n goes to directory n mod count, skipping
directories whose disk is too full; reading finds the files wherever they are. readOnlyCommitLogStorePaths get no new
segments; those in them are read, are filled up, and expire like all others if their disk allows it.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from twinlog.store.errors import (
    AllocationFailed,
    FlushFailed,
    ForeignFile,
    OffsetGap,
    ReadOnlySegment,
    SegmentGap,
    StoreClosed,
)
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.log.segment import PAGE, SEGMENT_NAME, Segment
from twinlog.store.page_cache import read_ahead
from twinlog.telemetry.log import get_logger
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC

log = get_logger(__name__)

WRITE_BYTES_MIN = 16 * 1024  # from here on a write call is cheaper than the page faults of a copy into the mapping
_AHEAD_BYTES = 4 * 1024 * 1024
_INT = struct.Struct(">i")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class RawRoom:
    """Free bytes behind the log's end, in one file."""

    descriptor: int
    position: int
    size: int
    _ops: FileOps

    def write(self, parts: Sequence[memoryview], at: int) -> int:
        """Write `parts` one after the other from position `at` of the file on; returns how many bytes that was."""
        total = sum(map(len, parts))
        assert self.position <= at and at + total <= self.position + self.size
        self._ops.write_parts(self.descriptor, parts, at)
        return total


class CommitLog:
    """All segments of a store, oldest first."""

    def __init__(
        self,
        directories: Sequence[Path],
        segment_size: int,
        *,
        writable: bool = True,
        read_only_directories: Sequence[Path] = (),
        disk_ratio_max: float = 1.0,
        ops: FileOps = FILE_OPS,
    ) -> None:
        self.directories = list(directories)
        self._read_only_directories = list(read_only_directories)  # some of `directories`
        self.segment_size = segment_size
        self.writable = writable
        self.segments: list[Segment] = []
        self.log_end = 0
        self.flushed_end = 0
        self.disk_ratio_max = disk_ratio_max
        self._ops = ops
        self._bases: list[int] = []
        self._by_base = (self._bases, self.segments)  # both lists as one value, for readers in other threads
        self._next: Future[Segment] | None = None
        self._filling: Segment | None = None  # by a thread, see `raw_room`
        self._worker: ThreadPoolExecutor | None = None
        self._read_end = 0  # up to here the worker was asked to read
        self._flush_lock = threading.Lock()
        self._flush_failure: FlushFailed | None = None
        self._closed = False

    def load(self) -> None:
        """Open every segment file; until recovery finds the log's end, all of them count as full."""
        paths = sorted(_segment_paths(self.directories), key=lambda path: path.name)
        if paths and os.lstat(paths[-1]).st_size == 0:  # a crash came before its allocation
            empty = paths.pop()
            if self.writable:
                self._ops.remove(empty)
        if paths and self.writable:
            self._lengthen(paths)
        for path in paths:
            segment = Segment.open(path, self.segment_size, writable=self._may_write(path), ops=self._ops)
            if self.segments and self.segments[-1].end != segment.base:
                raise SegmentGap(ends=self.segments[-1].end, next_begins=segment.base)
            self._add(segment)
        self.log_end = self.flushed_end = self.segments[-1].end if self.segments else 0

    def _lengthen(self, paths: Sequence[Path]) -> None:
        """Give a last segment that was cut short its size again; recovery finds where its records end.

        A single file with whole pages may be of a store that was written with another setting: `open` refuses it.
        """
        last, found = paths[-1], os.lstat(paths[-1]).st_size
        if found >= self.segment_size or not self._may_write(last) or last.is_symlink():
            return
        if len(paths) == 1 and found % mmap.PAGESIZE == 0:
            return
        descriptor = self._ops.open(last, os.O_RDWR)
        try:
            self._ops.secure(descriptor, self.segment_size)
        except OSError as error:
            raise AllocationFailed(last, self.segment_size, error) from error
        finally:
            os.close(descriptor)
        log.warning("the last segment was cut short; it has its size again", path=str(last), bytes=found)

    def _may_write(self, path: Path) -> bool:
        """Whether a segment is opened for writing: in a read-only directory only if it can be, and not a link."""
        if not self.writable or path.parent not in self._read_only_directories:
            return self.writable
        return os.access(path, os.W_OK) and not path.is_symlink()

    def check_end(self) -> None:
        """Refuse a log that ends in a file which cannot be written: every send would fail."""
        if self.segments and self.log_end < self.segments[-1].end and not self.segments[-1].writable:
            raise ReadOnlySegment(self.segments[-1].path)

    @property
    def log_start(self) -> int:
        return self._bases[0] if self._bases else self.log_end

    def segment_at(self, physical_offset: int) -> Segment | None:
        """The segment that holds this byte."""
        bases, segments = self._by_base
        index = bisect.bisect_right(bases, physical_offset) - 1
        if index < 0 or physical_offset >= bases[index] + self.segment_size:
            return None
        return segments[index]

    def slice(self, physical_offset: int, size: int) -> memoryview | None:
        """`size` bytes without copying; None when they are not (or no longer) all in one segment of the log."""
        segment = self.segment_at(physical_offset)
        if segment is None or size < 0 or physical_offset + size > min(self.log_end, segment.end):
            return None
        return segment.view(physical_offset - segment.base, size)

    window = slice

    def need(self, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Called before records are read in a window: a page fault brings in what is not in memory."""

    def chunk(self, physical_offset: int, bytes_max: int) -> memoryview | None:
        """Up to `bytes_max` bytes from an offset, ending at the segment's or the log's end: a transfer."""
        segment = self.segment_at(physical_offset)
        if segment is None or physical_offset >= self.log_end:
            return None
        end = min(physical_offset + bytes_max, segment.end, self.log_end)
        return segment.view(physical_offset - segment.base, end - physical_offset)

    def record(self, physical_offset: int) -> memoryview | None:
        """The record that begins at this offset, by its own size field; None when there is none."""
        segment = self.segment_at(physical_offset)
        if segment is None:
            return None
        left = min(self.log_end, segment.end) - physical_offset
        if left < _INT.size:
            return None
        position = physical_offset - segment.base
        (size,) = _INT.unpack_from(segment.map, position)
        return segment.view(position, size) if 0 <= size <= left else None

    def ranges(self, begin: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """(segment, first position, end position) of every file part between two offsets."""
        for segment in list(self.segments):
            first, last = max(begin, segment.base), min(end, segment.end)
            if first < last:
                yield segment, first - segment.base, last - segment.base

    # ---- growing

    def tail(self) -> Segment:
        """The segment the next byte goes to; created when the log is empty or its last file is full."""
        if self._closed:
            raise StoreClosed
        if not self.segments or self.log_end == self.segments[-1].end:
            self._extend()
        last = self.segments[-1]
        if not last.has_blocks:
            last.secure()
        return last

    def roll(self) -> Segment:
        """Close the last segment with a blank record, and start the next one."""
        segment = self.tail()
        free = segment.end - self.log_end
        if free >= BLANK_BYTES:
            SIZE_AND_MAGIC.pack_into(segment.map, self.log_end - segment.base, free, MAGIC_BLANK)
        self.log_end = segment.end
        return self.tail()

    def write_records(self, data: memoryview) -> None:
        """Append records, which the last segment has room for, by system calls; what fails leaves the log as it was.

        The kernel need not fill pages with zeros that are overwritten as a whole. The first eight bytes, without which
        there is no record, come last.
        """
        segment = self.tail()
        position = self.log_end - segment.base
        assert position + len(data) + BLANK_BYTES <= segment.size
        try:
            self._ops.write(segment.descriptor, data[8:], position + 8)
            self._ops.write(segment.descriptor, data[:8], position)
        except OSError:
            self.truncate(self.log_end)  # records after the first could be found behind a shorter one
            raise
        self.log_end += len(data)
        self.allocate_ahead()

    def write_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> None:
        """Append a master's bytes, which may begin and end inside a record and cross files.

        An empty log starts at the file boundary below the first offset, with zeros before it.
        """
        if not self.segments and self.log_end != physical_offset:
            self.begin_at(physical_offset)
        if physical_offset != self.log_end:
            raise OffsetGap(log_end=self.log_end, data_begins=physical_offset)
        data = memoryview(data)
        while data:
            segment = self.tail()
            position = self.log_end - segment.base
            length = min(len(data), segment.size - position)
            if length >= WRITE_BYTES_MIN:  # the kernel need not fill with zeros what is about to be overwritten
                self._ops.write(segment.descriptor, data[:length], position)
            else:
                # A copy writes its first bytes last. A process that is killed where the copy needs a new page would
                # leave a hole with valid records behind it, so these pages are there before the copy begins.
                for page in range(position - position % PAGE + PAGE, position + length, PAGE):
                    segment.map[page] = 0
                segment.map[position : position + length] = data[:length]
            self.log_end += length
            data = data[length:]
            self.allocate_ahead()

    def raw_room(self, bytes_max: int) -> RawRoom:
        """Where the next of a master's bytes go, for a thread that writes them; `raw_written` adds them to the log."""
        segment = self.tail()
        if segment is not self._filling:
            self.end_raw()
            segment.read_ahead(False)  # the kernel would fill pages with zeros that are about to be written
            self._filling = segment
        position = self.log_end - segment.base
        return RawRoom(segment.descriptor, position, min(bytes_max, segment.size - position), self._ops)

    def raw_written(self, log_end: int) -> None:
        """The log now ends at `log_end`: the bytes before it were written to the last room."""
        assert self.log_end <= log_end <= self.segments[-1].end, (self.log_end, log_end)
        self.log_end = log_end
        self.allocate_ahead()

    def end_raw(self) -> None:
        """The thread that used `raw_room` does not write any more."""
        if self._filling is not None:
            self._filling.read_ahead(True)
            self._filling = None

    def begin_at(self, physical_offset: int) -> None:
        """Make an empty log begin in the file that holds `physical_offset`."""
        if self.segments:
            raise OffsetGap(log_end=self.log_end, data_begins=physical_offset)
        self._drop_next()
        self.log_end = self.flushed_end = physical_offset - physical_offset % self.segment_size
        self._extend()
        self.log_end = self.flushed_end = physical_offset

    def allocate_ahead(self) -> None:
        """Have the worker prepare the next segment once the last one is half full."""
        if self._next is not None or self._closed or not self.segments:
            return
        last = self.segments[-1]
        if self.log_end - last.base < self.segment_size // 2:
            return
        self._next = self._in_background(self._create, last.end)

    def read_ahead(self) -> None:
        """Have the worker read what follows the log's end, so that records find its pages in memory.

        A new page must be filled with zeros, which takes as long as storing a batch of messages there. In a system
        call of the worker, this costs the writing thread nothing.
        """
        last, begin = self.segments[-1], max(self.log_end, self._read_end)
        end = min(begin + _AHEAD_BYTES, last.end)
        if begin < end and begin - self.log_end < _AHEAD_BYTES // 2 and not self._closed:
            self._read_end = end
            self._in_background(read_ahead, last.descriptor, begin - last.base, end - begin)

    # ---- shrinking

    def truncate(self, end: int, *, durable: bool = False) -> None:
        """Cut the log at `end`: later files are deleted, and the rest of the last file becomes zeros.

        `durable` waits until the zeros are on disk, so that not even a power failure brings records back.
        """
        with self._flush_lock:
            self._drop_next()
            while self.segments and self.segments[-1].base > end:
                self._remove(len(self.segments) - 1)
            self.log_end = end
            self._read_end = min(self._read_end, end)
            self.flushed_end = min(self.flushed_end, end)
            if self.segments and self.writable and self.segments[-1].writable and end < self.segments[-1].end:
                zeroed = self.segments[-1].zero_from(max(0, end - self.segments[-1].base))
                if durable and zeroed:
                    self.segments[-1].flush()

    def drop_oldest(self) -> Segment | None:
        """Delete the oldest segment; never the last one, nor one that is not flushed yet."""
        if len(self.segments) < 2 or self.segments[0].end > self.flushed_end:
            return None
        if not os.access(
            self.segments[0].path.parent, os.W_OK
        ):  # a file that cannot be deleted would leave a gap in the log
            return None
        segment = self._take_out(0)
        self._in_background(segment.discard)  # unmapping and freeing a large file's blocks takes a while
        return segment

    def clear(self) -> None:
        """Delete every segment, for a replica that starts over."""
        with self._flush_lock:
            self._drop_next()
            while self.segments:
                self._remove(len(self.segments) - 1)
            self.log_end = self.flushed_end = self._read_end = 0

    # ---- durability

    def flush(self) -> int:
        """Make everything appended so far durable; returns the new flushed end. Callable from any thread.

        After FlushFailed every call fails with it: what is on disk is unknown until the log is opened again.
        """
        with self._flush_lock:
            if self._closed:
                raise StoreClosed
            if self._flush_failure is not None:
                # A second fdatasync may succeed without the pages that the first one lost, so it would prove nothing.
                raise self._flush_failure
            end = self.log_end
            for segment, _, _ in self.ranges(self.flushed_end, end):
                try:
                    segment.flush()
                except FlushFailed as error:
                    self._flush_failure = error
                    raise
                self.flushed_end = max(self.flushed_end, min(end, segment.end))
            return self.flushed_end

    def drop_cached(self, begin: int, end: int) -> None:
        """Free the memory that caches these bytes, as far as they are flushed. Callable from any thread."""
        with self._flush_lock:
            if not self._closed:
                for segment, first, last in self.ranges(begin, min(end, self.flushed_end)):
                    segment.drop_cached(first, last)

    def close(self) -> None:
        """Close all files; a segment allocated ahead and never used is deleted."""
        if self._closed:
            return
        with self._flush_lock:
            self._closed = True
            self._drop_next()
            if self._worker is not None:
                self._worker.shutdown()
            for segment in self.segments:
                segment.close()

    def _in_background(self, function: Callable[..., Made], *arguments: object) -> Future[Made]:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="segment-files")
        return self._worker.submit(function, *arguments)

    def _extend(self) -> None:
        if self._next is None:
            segment = self._create(self.log_end)
        else:
            pending, self._next = self._next, None
            segment = pending.result()
        if self.segments:
            self.segments[-1].release_pages()
        self._add(segment)

    def _create(self, base: int) -> Segment:
        directory = self._choose_directory(base // self.segment_size)
        return Segment.create(directory, base, self.segment_size, self._ops)

    def _choose_directory(self, number: int) -> Path:
        writable = [path for path in self.directories if path not in self._read_only_directories]
        candidates = [path for path in writable if disk_used_ratio(path) <= self.disk_ratio_max] or writable
        return candidates[number % len(candidates)]

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._bases.append(segment.base)

    def _take_out(self, index: int) -> Segment:
        segment = self.segments[index]
        self.segments = [one for one in self.segments if one is not segment]
        self._bases = [one.base for one in self.segments]
        self._by_base = (self._bases, self.segments)
        return segment

    def _remove(self, index: int) -> Segment:
        segment = self._take_out(index)
        segment.remove()
        return segment

    def _drop_next(self) -> None:
        if self._next is not None:
            pending, self._next = self._next, None
            with contextlib.suppress(Exception):  # an allocation that failed left nothing behind
                pending.result().remove()


def disk_used_ratio(path: Path) -> float:
    """Used part of the partition that holds `path`, as Java computes it; 0 when it is unknown."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return 0.0
    total = usage.used + usage.free
    return -(-usage.used * 100 // total) / 100 if total else 0.0


def _segment_paths(directories: Sequence[Path]) -> Iterator[Path]:
    for directory in directories:
        if directory.is_dir():
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir():
                        continue
                    if not SEGMENT_NAME.match(entry.name):
                        raise ForeignFile(Path(entry.path))
                    yield Path(entry.path)
