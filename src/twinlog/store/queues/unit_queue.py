"""Units of one size in a row of equally sized files: the base of every kind of queue.

    units   0 ......... U-1 | U ........ 2U-1 | 2U ... written | written ... end
            file 0          | file U·unit     | file 2U·unit   | tail (memory)

Files are written with pwrite and never mapped, so a full disk is an error and not a signal. New units are added to
`tail` and reads see them at once; `write` moves them to the files. A lost tail is not lost data: recovery dispatches
the records of the log again.

Two threads work here: one appends and reads, the other writes and flushes. Tails change
under `FilePool.lock`; only one thread at a time writes files, under `FilePool.writing`.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from twinlog.base.safe_files import refuse_link
from twinlog.store.errors import ForeignFile, SegmentSizeMismatch
from twinlog.store.file_pool import FilePool

_PROBE_BYTES = 1280
_CHUNK_BYTES = 1 << 20


class UnitQueue:
    """A queue of equal units; `first` is where its oldest file begins, `end` the number of the next unit."""

    __slots__ = ("changes", "directory", "end", "file_units", "files", "first", "tail", "written")

    UNIT: ClassVar[struct.Struct]
    UNIT_BYTES: ClassVar[int]
    UNIT_TYPE: ClassVar[np.dtype]
    SIZE_SETTING: ClassVar[str]

    def __init__(self, files: FilePool, directory: str, file_bytes: int) -> None:
        self.files = files
        self.directory = directory
        self.file_units = -(-file_bytes // self.UNIT_BYTES)  # Java rounds up, too
        self.first = self.written = self.end = 0
        self.changes = 0  # how often units may have changed, other than by appends
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
        # A short read: retention has deleted a file meanwhile. Units behind that hole must not be returned.
        return old + fresh if len(old) == min(count, written - unit) * size else old

    def in_memory(self, unit: int, count: int) -> bool:
        """Whether `read` would return these units without waiting for the disk."""
        written, size = self.written, self.UNIT_BYTES
        end = min(unit + count, written)
        while unit < end:
            at = unit % self.file_units
            take = min(end - unit, self.file_units - at)
            if not self.files.in_memory(self.path_of(unit), take * size, at * size):
                return False
            unit += take
        return True

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
            self.changes += 1
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
            self.changes += 1

    def recover(self, *, thorough: bool = True) -> None:
        """Find where the data begins and ends. After a crash the last three files are checked, as in Java."""
        starts = self._load_starts()
        self.changes += 1
        self.tail.clear()
        if not starts:
            self.first = self.written = self.end = 0
            return
        at = max(0, len(starts) - 3) if thorough else len(starts) - 1
        good = self._count_good(starts[at])
        while good == 0 and at > 0:  # an empty last file: the data ends in a file before it
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

    @staticmethod
    def good(units: np.ndarray) -> np.ndarray:
        """Which of these units hold data: the first that does not ends the queue."""
        return (units["physical_offset"] >= 0) & (units["size"] > 0)

    def _count_good(self, start: int) -> int:
        """How many units at the front of the file that begins at `start` hold data."""
        path, size = self.path_of(start), self.UNIT_BYTES
        data = self.files.read(path, min(self.file_units, _PROBE_BYTES // size) * size, 0)
        good = 0
        for unit in self.UNIT.iter_unpack(data):  # most queues are short, and a numpy call costs more
            if not self._is_good(unit):
                return good
            good += 1
        while good < self.file_units and data:
            data = self.files.read(path, min(self.file_units - good, _CHUNK_BYTES // size) * size, good * size)
            bad = np.flatnonzero(~self.good(np.frombuffer(data, self.UNIT_TYPE)))
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
            if len(data) < take * size:  # deleted meanwhile
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
