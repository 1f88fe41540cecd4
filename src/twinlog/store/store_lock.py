"""Two marker files of a store: `lock` keeps a second broker out, `abort` tells that the last one crashed.

The lock is a POSIX record lock on byte 0, which is what Java takes; `flock` would not conflict with it.
Record locks belong to the process, so a second store in the same process is kept out by a table here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from twinlog.store.errors import StoreLocked
from twinlog.store.file_ops import FILE_OPS, FileOps

_held: set[str] = set()


class StoreLock:
    """The exclusive right to change a store directory."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, root: Path) -> StoreLock:
        """Take the lock of the store in `root`, or raise StoreLocked."""
        root.mkdir(parents=True, exist_ok=True)
        path = root.resolve() / "lock"
        if str(path) in _held:
            raise StoreLocked(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLocked(path) from error
        _held.add(str(path))
        return cls(path, descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            _held.discard(str(self._path))
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(root: Path) -> bool:
    """Whether a broker, of this process or another, has the store open."""
    path = root.resolve() / "lock"
    if str(path) in _held:  # closing a second descriptor of the file would give up this process's lock
        return True
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def has_abort_marker(root: Path) -> bool:
    return (root / "abort").exists()


def set_abort_marker(root: Path, ops: FileOps = FILE_OPS) -> None:
    """Say that a broker is running; durable before the first message is taken."""
    descriptor = os.open(root / "abort", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        ops.write(descriptor, str(os.getpid()).encode(), 0)
        ops.flush(descriptor)
    finally:
        os.close(descriptor)
    ops.flush_directory(root)


def clear_abort_marker(root: Path, ops: FileOps = FILE_OPS) -> None:
    """Say that everything is on disk and in the queues; Java trusts this blindly."""
    ops.remove(root / "abort")
    with contextlib.suppress(OSError):
        ops.flush_directory(root)
