"""The few system calls through which the store changes files.

Everything durable goes through one `FileOps` object, so that a test can fail the n-th write, allocation
or flush and check what recovery makes of it. The appends themselves go into mapped memory,
whose blocks `allocate` has secured beforehand; only large batches are written by a call.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from twinlog.base.atomic_file import sync_directory
from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.safe_files import make_directory, open_file
from twinlog.base.system_calls import allocate_blocks, sync_data, sync_filesystem, write_from

_PARTS_MAX = 512  # Linux takes 1024 at a time


class FileOps:
    """Plain system calls; tests derive from it."""

    modes = PRIVATE  # of new files and directories

    def __init__(self, modes: Modes = PRIVATE) -> None:
        self.modes = modes

    def open(self, path: str | os.PathLike[str], flags: int) -> int:
        """A descriptor of a file of the store, never through a link in its place."""
        return open_file(path, flags, self.modes)

    def make_directory(self, path: str | os.PathLike[str]) -> None:
        """Make a directory and its parents, as far as they are missing."""
        make_directory(path, self.modes)

    def allocate(self, path: Path, size: int) -> int:
        """Create `path` with all its blocks and return its descriptor; nothing stays behind on failure."""
        descriptor = self.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            allocate_blocks(descriptor, 0, size)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return descriptor

    def secure(self, descriptor: int, size: int) -> None:
        """Give an existing file its missing blocks: Java's files are sparse until written."""
        allocate_blocks(descriptor, 0, size)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write all of `data` at byte `at`."""
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(descriptor, view, at)
            if written == 0:
                raise OSError(errno.EIO, f"wrote 0 of {len(view)} bytes at {at}")
            view, at = view[written:], at + written

    def write_parts(self, descriptor: int, parts: Sequence[memoryview], at: int) -> None:
        """Write all of `parts`, one after the other, from byte `at` on: one call for most."""
        for first in range(0, len(parts), _PARTS_MAX):
            some = parts[first : first + _PARTS_MAX]
            total, written = sum(map(len, some)), write_from(descriptor, some, at)
            if written < total:
                self.write(descriptor, memoryview(b"".join(some))[written:], at + written)
            at += total

    def flush(self, descriptor: int) -> None:
        """Make the file's bytes durable, mapped writes included; other threads run meanwhile."""
        sync_data(descriptor)

    def flush_filesystem(self, descriptor: int) -> None:
        """Make everything in the file's file system durable: for thousands of small files at once."""
        sync_filesystem(descriptor)

    def flush_directory(self, path: Path) -> None:
        """Make created and removed names in `path` durable."""
        sync_directory(path)

    def remove(self, path: Path) -> None:
        """Remove one file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


FILE_OPS = FileOps()
