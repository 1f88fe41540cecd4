"""One memory-mapped file of the commit log.

A segment has its full size from the beginning, and its name is the physical offset of its first
byte in 20 digits. Its blocks are allocated before it is mapped: a store into a mapped hole on a full
disk would kill the process with SIGBUS, an allocation only fails.

Readers hold `memoryview`s of the mapping. Removing a segment therefore never unmaps it: the file
loses its name at once, and its memory is freed with the last view.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from twinlog.base.safe_files import refuse_link
from twinlog.base.system_calls import find_data, forget_cached
from twinlog.store.errors import (
    AllocationFailed,
    FlushFailed,
    ForeignFile,
    ReadOnlySegment,
    SegmentSizeMismatch,
    StoreClosed,
)
from twinlog.store.file_ops import FILE_OPS, FileOps

SEGMENT_NAME = re.compile(r"[0-9]{20}\Z")
PAGE = mmap.PAGESIZE
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14: maps pages for writing, many at a time
_POPULATE_BYTES = 256 * 1024
_RELEASE_BYTES = 16 * 1024 * 1024
_ZEROS = bytes(1024 * 1024)


def segment_name(base: int) -> str:
    """The file name of the segment whose first byte is `base`."""
    return f"{base:020d}"


def segment_size_of(directories: Iterable[Path]) -> int | None:
    """The size of the segments in these directories, which all have the same; None when there are none.

    A crash may leave a last segment of 0 bytes, so the largest counts.
    """
    files = (path for place in directories if place.is_dir() for path in place.iterdir())
    return max((path.stat().st_size for path in files if SEGMENT_NAME.match(path.name)), default=None)


class Segment:
    """`size` bytes of the log, from physical offset `base`."""

    __slots__ = ("_map", "_ops", "_populated", "base", "descriptor", "has_blocks", "path", "size", "writable")

    def __init__(self, path: Path, base: int, size: int, descriptor: int, *, writable: bool, ops: FileOps) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.descriptor = descriptor
        self.writable = writable
        self.has_blocks = False  # unknown of a file that already existed
        self._ops = ops
        self._map: mmap.mmap | None = None
        self._populated = 0

    @classmethod
    def create(cls, directory: Path, base: int, size: int, ops: FileOps = FILE_OPS) -> Segment:
        """A new segment of zeros, with every block allocated."""
        path = directory / segment_name(base)
        try:
            ops.make_directory(directory)
            refuse_link(path)
            if path.exists():  # left by a crash, beyond the log's end: its bytes are not part of the log
                ops.remove(path)
            segment = cls(path, base, size, ops.allocate(path, size), writable=True, ops=ops)
            segment.has_blocks = True
            try:
                ops.flush_directory(directory)
            except OSError:
                segment.remove()
                raise
        except OSError as error:
            raise AllocationFailed(path, size, error) from error
        return segment

    @classmethod
    def open(cls, path: Path, size: int, *, writable: bool, ops: FileOps = FILE_OPS) -> Segment:
        """An existing segment; its size must be `size`."""
        if not SEGMENT_NAME.match(path.name):
            raise ForeignFile(path)
        descriptor = ops.open(path, os.O_RDWR) if writable else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(descriptor).st_size
        if found != size:
            os.close(descriptor)
            raise SegmentSizeMismatch(path, found=found, expected=size, setting="mappedFileSizeCommitLog")
        return cls(path, int(path.name), size, descriptor, writable=writable, ops=ops)

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def map(self) -> mmap.mmap:
        """The mapping, made when first needed; StoreClosed after `close`, which may come from another thread."""
        mapped = self._map
        if mapped is None:
            if self.descriptor < 0:  # a mapping without a file would be all zeros
                raise StoreClosed
            access = mmap.ACCESS_WRITE if self.writable else mmap.ACCESS_READ
            mapped = self._map = mmap.mmap(self.descriptor, self.size, access=access)
        return mapped

    def view(self, position: int, length: int) -> memoryview:
        """`length` bytes at `position` of this file, without copying."""
        return memoryview(self.map)[position : position + length]

    def secure(self) -> None:
        """Allocate missing blocks, before the segment is written to."""
        if not self.writable:
            raise ReadOnlySegment(self.path)
        try:
            self._ops.secure(self.descriptor, self.size)
        except OSError as error:
            raise AllocationFailed(self.path, self.size, error) from error
        self.has_blocks = True

    def populate(self, position: int) -> int:
        """Map the pages around `position` for writing in one call; returns where the mapped part ends.

        One page fault per 4 KiB costs as much as encoding five messages. Kernels without this call
        fault page by page. Pages far behind are released on the way.
        """
        if position > self._populated:
            begin = self._populated
            if position - begin > _POPULATE_BYTES:
                begin = position - position % PAGE
            end = min(max(begin + _POPULATE_BYTES, position), self.size)
            try:
                self.map.madvise(_POPULATE_WRITE, begin, end - begin)
            except (OSError, ValueError):
                end = self.size
            if begin // _RELEASE_BYTES != end // _RELEASE_BYTES:
                self.release_pages(end - 3 * _RELEASE_BYTES, end - _RELEASE_BYTES)
            self._populated = end
        return self._populated

    def release_pages(self, begin: int = 0, end: int | None = None) -> None:
        """Give pages back to the page cache: they stop counting as this process's memory, their content stays."""
        begin = max(0, begin - begin % PAGE)
        end = self.size if end is None else end
        mapped = self._map  # another thread may close the segment meanwhile
        if mapped is not None and begin < end:
            mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)
            if end == self.size:
                self._populated = 0

    def drop_cached(self, begin: int, end: int) -> None:
        """Let the kernel use the memory of these bytes for others: what is flushed of them leaves the page cache."""
        self.release_pages(begin, end)
        with contextlib.suppress(OSError):  # a hint that not every file system takes; or the file is closed by now
            forget_cached(self.descriptor, begin, end - begin)

    def read_ahead(self, wanted: bool) -> None:
        """Whether a page fault should bring in what follows the page. Behind the log's end there are only zeros."""
        self.map.madvise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """The ranges from `position` on that may hold something other than zeros."""
        ranges: list[tuple[int, int]] = []
        while position < self.size:
            begin, position = find_data(self.descriptor, position, self.size)
            if begin < position:
                ranges.append((begin, position))
        return ranges

    def zero_from(self, position: int) -> int:
        """Overwrite everything from `position` with zeros; returns how many bytes needed it.

        A later recovery could take bytes behind a cut for records. Ranges of zeros are only read.
        """
        zeroed = 0
        for begin, end in self.data_ranges(position):
            for at in range(begin, end, len(_ZEROS)):
                length = min(len(_ZEROS), end - at)
                zeros = _ZEROS if length == len(_ZEROS) else _ZEROS[:length]
                if self.map[at : at + length] != zeros:
                    self._ops.write(self.descriptor, zeros, at)
                    zeroed += length
        return zeroed

    def flush(self) -> None:
        """Make the segment durable. Safe to call from another thread than the writer's."""
        try:
            self._ops.flush(self.descriptor)
        except OSError as error:
            raise FlushFailed(self.path, error) from error

    def close(self) -> None:
        """Forget the mapping and close the file; views that readers still hold stay valid."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def discard(self) -> None:
        """Close and delete a segment that the log no longer has, beside the thread that serves: in small steps."""
        for begin in range(0, self.size, _RELEASE_BYTES):
            self.release_pages(begin, min(begin + _RELEASE_BYTES, self.size))
            time.sleep(0)  # `madvise` keeps the interpreter lock
        self.remove()

    def remove(self) -> None:
        """Close the segment and delete its file."""
        self.close()
        self._ops.remove(self.path)
