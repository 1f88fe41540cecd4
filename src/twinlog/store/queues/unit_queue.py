"""Units of one size in a row of equally sized files: the ground that each kind of queue stands on.

    units   0 ......... U-1 | U ........ 2U-1 | 2U ... written | written ... end
            file 0          | file U·unit     | file 2U·unit   | tail (memory)

Files are written with pwrite, never mapped, and have their full size from the start without owning the
blocks: a full disk is an error, and a queue of ten messages costs one page. New units gather in `tail`
until someone calls `write`; reads see them at once. Losing the tail loses nothing, since the log can
dispatch its records again.

Two threads may meet here: the one that appends and reads, and one that writes and flushes. Tails change
under `QueueFiles.lock`; only one thread at a time writes files, under `QueueFiles.writing`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from twinlog.base.safe_files import refuse_link
from twinlog.store.errors import ForeignFile, SegmentSizeMismatch
from twinlog.store.file_ops import FILE_OPS, FileOps

OPEN_FILES_MAX = 256
FLUSH_EACH_MAX = 256  # more files than this are flushed in one go, with everything else on their disk
_PROBE_BYTES = 1280
_CHUNK_BYTES = 1 << 20


class QueueFiles:
    """Shared access to queue files: a bounded number stays open for reading, whatever the number of queues."""

    def __init__(self, ops: FileOps = FILE_OPS, open_max: int = OPEN_FILES_MAX) -> None:
        self.lock = threading.Lock()
        self.writing = threading.RLock()
        self.ops = ops
        self.unflushed: set[str] = set()
        self._open_max = open_max
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._reading = threading.Lock()  # a descriptor must not be closed, and reused, under a reader

    def read(self, path: str, count: int, at: int) -> bytes:
        """Up to `count` bytes at `at`; nothing when the file does not exist."""
        with self._reading:
            descriptor = self._descriptors.get(path)
            if descriptor is None:
                try:
                    descriptor = self.ops.open(path, os.O_RDONLY)
                except FileNotFoundError:
                    return b""
                self._descriptors[path] = descriptor
                if len(self._descriptors) > self._open_max:
                    os.close(self._descriptors.popitem(last=False)[1])
            else:
                self._descriptors.move_to_end(path)
            return os.pread(descriptor, count, at)

    def read_written(self, path: str, zeros: memoryview, at: int) -> None:
        """Fill `zeros` with the bytes from `at` on, except where the file was never written: those stay untouched."""
        try:
            descriptor = self.ops.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            position, end = at, at + len(zeros)
            while position < end:
                first = os.lseek(descriptor, position, os.SEEK_DATA)
                position = min(os.lseek(descriptor, first, os.SEEK_HOLE), end)
                if first < position:
                    os.preadv(descriptor, [zeros[first - at : position - at]], first)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing was written from here on
                raise
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes | bytearray | memoryview, at: int, file_bytes: int) -> None:
        """Write `data`; a new file gets its full size at once, as Java expects, and no blocks."""
        try:
            descriptor = self.ops.open(path, os.O_WRONLY)
        except FileNotFoundError:
            descriptor = _create(path, file_bytes, self.ops)
        try:
            self.ops.write(descriptor, data, at)
        finally:
            os.close(descriptor)
        self.unflushed.add(path)

    def flush(self) -> None:
        """Make what was written so far durable; a file deleted meanwhile needs nothing."""
        with self.writing:
            paths, self.unflushed = list(self.unflushed), set()
        try:
            if len(paths) > FLUSH_EACH_MAX:
                for path in _one_of_each_disk(paths):
                    self._flush_path(path, self.ops.flush_filesystem)
                return
            while paths:
                self._flush_path(paths[-1], self.ops.flush)
                paths.pop()
        except OSError:
            with self.writing:
                self.unflushed.update(paths)
            raise

    def _flush_path(self, path: str, flush: Callable[[int], None]) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            flush(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        self.forget(path)
        self.unflushed.discard(path)
        self.ops.remove(Path(path))

    def forget(self, path: str) -> None:
        with self._reading:
            descriptor = self._descriptors.pop(path, None)
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        with self._reading:
            for descriptor in self._descriptors.values():
                os.close(descriptor)
            self._descriptors.clear()

    @property
    def open_count(self) -> int:
        return len(self._descriptors)


def _one_of_each_disk(paths: list[str]) -> list[str]:
    """The directory of one file on each file system; directories stay when retention deletes files."""
    places: dict[int, str] = {}
    for directory in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(FileNotFoundError):
            places[os.stat(directory).st_dev] = directory
    return list(places.values())


def _create(path: str, file_bytes: int, ops: FileOps) -> int:
    try:
        descriptor = ops.open(path, os.O_WRONLY | os.O_CREAT)
    except FileNotFoundError:
        ops.make_directory(os.path.dirname(path))
        descriptor = ops.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(descriptor, file_bytes)
    except BaseException:
        os.close(descriptor)
        os.unlink(path)  # a short file would stop the next start
        raise
    return descriptor


class UnitQueue:
    """A queue of equal units; `first` is where its oldest file begins, `end` the number of the next unit."""

    __slots__ = ("directory", "end", "file_units", "files", "first", "tail", "written")

    UNIT = struct.Struct(">qiq")
    UNIT_BYTES = 20
    UNIT_TYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    SIZE_SETTING = "mappedFileSizeConsumeQueue"

    def __init__(self, files: QueueFiles, directory: str, file_bytes: int) -> None:
        self.files = files
        self.directory = directory
        self.file_units = -(-file_bytes // self.UNIT_BYTES)  # Java rounds up, too
        self.first = self.written = self.end = 0
        self.tail = bytearray()

    @property
    def file_bytes(self) -> int:
        return self.file_units * self.UNIT_BYTES

    def path_of(self, unit: int) -> str:
        start = unit - unit % self.file_units
        return f"{self.directory}/{start * self.UNIT_BYTES:020d}"

    def read(self, unit: int, count: int) -> bytes | bytearray:
        """The bytes of up to `count` units from `unit` on, wherever they are; fewer only at the end."""
        size = self.UNIT_BYTES
        with self.files.lock:
            written = self.written
            if unit >= written:
                at = (unit - written) * size
                return self.tail[at : at + count * size]
            fresh = bytes(self.tail[: max(0, unit + count - written) * size])
        old = self._read_files(unit, min(count, written - unit))
        # A short read means that retention was faster; what follows the hole is not ours to return.
        return old + fresh if len(old) == min(count, written - unit) * size else old

    def write(self) -> None:
        """Move the tail into the files. On failure everything that was not written stays in the tail."""
        with self.files.writing:
            while True:
                with self.files.lock:
                    start = self.written
                    room = self.file_units - start % self.file_units
                    data = bytes(self.tail[: room * self.UNIT_BYTES])
                if not data:
                    return
                at = start % self.file_units * self.UNIT_BYTES
                self.files.write(self.path_of(start), data, at, self.file_bytes)
                with self.files.lock:
                    del self.tail[: len(data)]
                    self.written = start + len(data) // self.UNIT_BYTES

    def cut(self, end: int) -> None:
        """Forget units from `end` on; what was in files becomes zero, so that no recovery finds it again."""
        with self.files.writing, self.files.lock:
            assert self.first <= end <= self.end, (self.first, end, self.end)
            if end >= self.written:
                del self.tail[(end - self.written) * self.UNIT_BYTES :]
            else:
                self.tail.clear()
                last_file = (self.written - 1) // self.file_units
                keep = end // self.file_units
                if end % self.file_units == 0 and end > self.first:
                    keep -= 1
                for number in range(last_file, keep, -1):
                    self.files.remove(self.path_of(number * self.file_units))
                self._erase(end, min(self.written, (keep + 1) * self.file_units))
                self.written = end
            self.end = end

    def delete_files_below(self, unit: int) -> int:
        """Delete the files that lie wholly below `unit`, never the last one; returns how many went."""
        deleted = 0
        with self.files.writing:
            last = max(self.first, self.written - 1) // self.file_units * self.file_units
            while self.first + self.file_units <= min(unit, last):
                self.files.remove(self.path_of(self.first))
                self.first += self.file_units
                deleted += 1
        return deleted

    def delete(self) -> None:
        """Remove all files and the directory."""
        with self.files.writing, self.files.lock:
            for path in self._file_paths():
                self.files.remove(path)
            with contextlib.suppress(OSError):
                os.rmdir(self.directory)
            self.tail.clear()
            self.first = self.written = self.end = 0

    def recover(self, *, thorough: bool = True) -> None:
        """Find where the data begins and ends. After a crash the last three files are looked at, as in Java."""
        starts = self._load_starts()
        self.tail.clear()
        if not starts:
            self.first = self.written = self.end = 0
            return
        at = max(0, len(starts) - 3) if thorough else len(starts) - 1
        good = self._count_good(starts[at])
        while good == 0 and at > 0:  # an empty last file says nothing about the one before
            at -= 1
            good = self._count_good(starts[at])
        while good == self.file_units and at + 1 < len(starts):
            at += 1
            good = self._count_good(starts[at])
        for start in starts[at + 1 :]:
            self.files.remove(self.path_of(start))
        self.first = starts[0]
        self.written = self.end = starts[at] + good

    def _is_good(self, unit: tuple[int, ...]) -> bool:
        return unit[0] >= 0 and unit[1] > 0

    def _good(self, units: np.ndarray) -> np.ndarray:
        return (units["physical_offset"] >= 0) & (units["size"] > 0)

    def _count_good(self, start: int) -> int:
        """How many units at the front of the file that begins at `start` hold data."""
        path, size = self.path_of(start), self.UNIT_BYTES
        data = self.files.read(path, min(self.file_units, _PROBE_BYTES // size) * size, 0)
        good = 0
        for unit in self.UNIT.iter_unpack(data):  # most queues are short, and numpy takes its time to begin
            if not self._is_good(unit):
                return good
            good += 1
        while good < self.file_units and data:
            data = self.files.read(path, min(self.file_units - good, _CHUNK_BYTES // size) * size, good * size)
            bad = np.flatnonzero(~self._good(np.frombuffer(data, self.UNIT_TYPE)))
            if len(bad):
                return good + int(bad[0])
            good += len(data) // size
        return good

    def _load_starts(self) -> list[int]:
        """The first units of the files present, ascending; an empty last file is removed, as in Java."""
        found = []
        try:
            entries = list(os.scandir(self.directory))
        except FileNotFoundError:
            return []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            if not (len(entry.name) == 20 and entry.name.isdigit()):
                raise ForeignFile(Path(entry.path))
            if entry.is_symlink():
                refuse_link(entry.path)
            found.append((int(entry.name), entry.path, entry.stat().st_size))
        found.sort()
        if found and found[-1][2] == 0:
            self.files.remove(found.pop()[1])
        for start, path, size in found:
            if size != self.file_bytes or start % self.file_bytes:
                raise SegmentSizeMismatch(Path(path), found=size, expected=self.file_bytes, setting=self.SIZE_SETTING)
        return [start // self.UNIT_BYTES for start, _, _ in found]

    def _read_files(self, unit: int, count: int) -> bytes:
        size, parts = self.UNIT_BYTES, []
        while count > 0:
            at = unit % self.file_units
            take = min(count, self.file_units - at)
            data = self.files.read(self.path_of(unit), take * size, at * size)
            parts.append(data)
            if len(data) < take * size:  # deleted behind the reader's back
                break
            unit, count = unit + take, count - take
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _erase(self, start: int, end: int) -> None:
        """Overwrite units [start, end), all in one file, with zeros."""
        path, zeros, size = self.path_of(start), bytes(_CHUNK_BYTES), self.UNIT_BYTES
        at, stop = start % self.file_units * size, start % self.file_units * size + (end - start) * size
        while at < stop:
            take = min(_CHUNK_BYTES, stop - at)
            self.files.write(path, memoryview(zeros)[:take], at, self.file_bytes)
            at += take

    def _file_paths(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(self.directory)):
                if entry.name.isdigit():
                    yield entry.path
