"""Files of queues and index: any number of them, of which a bounded number stays open for reading.

A file has its full size from the start and owns only the blocks that were written: a queue of ten messages costs one
page. Writes are not durable before `flush`, which goes through the files that were written since the last one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from twinlog.base.system_calls import find_data, read_into
from twinlog.store.errors import OnDisk
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.page_cache import bytes_in_memory

OPEN_FILES_MAX = 256
FLUSH_EACH_MAX = 256  # more files than this are flushed in one go, with everything else on their disk


class FilePool:
    """Files by path, for all queues or for the index.

    `lock` guards the tails of queues and is held briefly; `writing` is held by the one thread that changes files.
    """

    def __init__(self, ops: FileOps = FILE_OPS, open_max: int = OPEN_FILES_MAX) -> None:
        self.lock = threading.Lock()
        self.writing = threading.RLock()
        self.ops = ops
        self.unflushed: set[str] = set()
        self._open_max = open_max
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._opening = threading.Lock()  # around `_open`; not held while a file is read

    def read(self, path: str, count: int, at: int) -> bytes:
        """Up to `count` bytes at `at`; nothing when the file does not exist."""
        file = self._take(path)
        if file is None:
            return b""
        try:
            return os.pread(file.descriptor, count, at)
        finally:
            self._give_back(file)

    def read_in_memory(self, path: str, count: int, at: int) -> bytes:
        """As `read`, for a loop: it raises OnDisk instead of waiting for the disk."""
        if not self.in_memory(path, count, at):
            raise OnDisk
        return self.read(path, count, at)

    def in_memory(self, path: str, count: int, at: int) -> bool:
        """Whether `read` would return these bytes without waiting for the disk."""
        file = self._take(path)
        if file is None:
            return True
        try:
            return bytes_in_memory(file.descriptor, at, count) == count
        finally:
            self._give_back(file)

    def _take(self, path: str) -> _OpenFile | None:
        """The open file, which stays open until `_give_back`; None when it does not exist."""
        with self._opening:
            file = self._open.get(path)
            if file is None:
                try:
                    file = self._open[path] = _OpenFile(self.ops.open(path, os.O_RDONLY))
                except FileNotFoundError:
                    return None
                if len(self._open) > self._open_max:
                    self._open.popitem(last=False)[1].drop()
            else:
                self._open.move_to_end(path)
            file.readers += 1
            return file

    def _give_back(self, file: _OpenFile) -> None:
        with self._opening:
            file.readers -= 1
            if file.dropped and not file.readers:
                file.drop()

    def read_written(self, path: str, zeros: memoryview, at: int) -> None:
        """Fill `zeros` with the bytes from `at` on, except where the file was never written: those stay as they are."""
        try:
            descriptor = self.ops.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            position, end = at, at + len(zeros)
            while position < end:
                first, position = find_data(descriptor, position, end)
                if first < position:
                    read_into(descriptor, [zeros[first - at : position - at]], first)
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
        with self._opening:
            file = self._open.pop(path, None)
            if file is not None:
                file.drop()

    def close(self) -> None:
        with self._opening:
            for file in self._open.values():
                file.drop()
            self._open.clear()


class _OpenFile:
    """A descriptor, and how many threads read through it: it must not be closed, and reused, under a reader."""

    __slots__ = ("descriptor", "dropped", "readers")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.readers = 0
        self.dropped = False

    def drop(self) -> None:
        """Close it now, or with its last reader."""
        self.dropped = True
        if not self.readers:
            os.close(self.descriptor)


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
