"""Two marker files of a store: `lock` keeps a second broker out, `abort` stays behind when a broker crashes.

The lock is a record lock on byte 0, as Java takes it; `flock` would not conflict with that. It belongs to
the open file rather than to the process: so it also keeps out a second store in this
process, and is not lost when other code of the process opens and closes the file. A system without such record locks
(`base/system_calls.py`) has `flock` after all: there is no Java broker beside ours there.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from twinlog.base.safe_files import refuse_link
from twinlog.base.system_calls import is_file_locked, lock_file
from twinlog.store.errors import StoreLocked
from twinlog.store.file_ops import FILE_OPS, FileOps


class StoreLock:
    """The exclusive right to change a store directory."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, root: Path, ops: FileOps = FILE_OPS) -> StoreLock:
        """Take the lock of the store in `root`; StoreLocked when another has it."""
        ops.make_directory(root)
        path = root / "lock"
        descriptor = ops.open(path, os.O_RDWR | os.O_CREAT)
        try:
            lock_file(descriptor)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(path) from error
            raise
        return cls(descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(root: Path) -> bool:
    """Whether a broker, of this process or another, has the store open."""
    try:
        descriptor = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return is_file_locked(descriptor)
    finally:
        os.close(descriptor)


def has_abort_marker(root: Path) -> bool:
    """Whether the last broker crashed, or one runs; UnsafeFile when the marker is a link."""
    refuse_link(root / "abort")
    return (root / "abort").exists()


def set_abort_marker(root: Path, ops: FileOps = FILE_OPS) -> None:
    """Make `abort`, durably: a broker is running. Done before the first message is stored."""
    descriptor = ops.open(root / "abort", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        ops.write(descriptor, str(os.getpid()).encode(), 0)
        ops.flush(descriptor)
    finally:
        os.close(descriptor)
    ops.flush_directory(root)


def clear_abort_marker(root: Path, ops: FileOps = FILE_OPS) -> None:
    """Remove `abort`: everything is on disk and in the queues. Java believes this without a check."""
    ops.remove(root / "abort")
    with contextlib.suppress(OSError):
        ops.flush_directory(root)
