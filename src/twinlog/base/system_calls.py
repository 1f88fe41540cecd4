"""System calls that not every Unix has, each with what replaces it: the only place that asks which one is there.

Linux has all of them, and a broker for production runs there. Elsewhere (macOS) the client, `twinlog dev` and the test
fixtures run with the replacements, which are slower and nothing else. A name is bound once, at import.

| here | Linux | without it |
|---|---|---|
| `allocate_blocks` | posix_fallocate | zeros are written into the holes |
| `sync_data` | fdatasync | F_FULLFSYNC (macOS: fsync leaves data in the drive's cache), else fsync |
| `sync_filesystem` | syncfs | sync |
| `read_into`, `write_from` | preadv, pwritev | pread and pwrite, buffer by buffer |
| `RWF_NOWAIT` | a flag of preadv | 0: everything counts as in memory |
| `forget_cached` | posix_fadvise | nothing: it is a hint |
| `send_file` | sendfile | pread and send |
| `MSG_MORE` | a flag of send | 0 |
| `find_data` | SEEK_DATA, SEEK_HOLE | everything counts as data |
| `lock_file`, `is_file_locked` | record locks of open files, which Java's locks conflict with | flock |
| `yield_core` | sched_yield | sleep(0) |
| `new_event_loop` | uvloop | asyncio's own loop |
| `keep_freed_memory` | mallopt of glibc | nothing: the allocator has rules of its own |
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence

_ZEROS = bytes(1024 * 1024)
_FLOCK = struct.Struct("hhqqi")  # type, whence, start, length, process: struct flock of 64-bit Linux
_SEND_BYTES_MAX = 256 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT_BYTES = 32 * 1024 * 1024  # also the most that glibc accepts as the second of them
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)


# -- files -----------------------------------------------------------------------------------------


def _fill_holes(descriptor: int, offset: int, size: int) -> None:
    """Give the file its size, and blocks to what has none; bytes that are there stay."""
    end = offset + size
    position, written = offset, min(os.fstat(descriptor).st_size, end)
    while position < end:
        begin, after = find_data(descriptor, position, written) if position < written else (end, end)
        for at in range(position, begin, len(_ZEROS)):
            piece = memoryview(_ZEROS)[: begin - at]
            while piece:  # a full disk may take a part of it, and then raises
                count = os.pwrite(descriptor, piece, at)
                piece, at = piece[count:], at + count
        position = after


def _read_each(descriptor: int, buffers: Sequence[memoryview | bytearray], position: int, flags: int = 0) -> int:
    total = 0
    for buffer in buffers:
        data = os.pread(descriptor, len(buffer), position + total)
        buffer[: len(data)] = data
        total += len(data)
        if len(data) < len(buffer):
            break
    return total


def _write_each(descriptor: int, parts: Sequence[memoryview], position: int) -> int:
    total = 0
    for part in parts:
        count = os.pwrite(descriptor, part, position + total)
        total += count
        if count < len(part):
            break
    return total


def _full_sync(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]  # macOS


def _sync_everything(descriptor: int) -> None:
    os.sync()


def _syncfs(descriptor: int) -> None:
    if _LIBC.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"syncfs: {os.strerror(number)}")


def _forget(descriptor: int, begin: int, size: int) -> None:
    os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def _forget_nothing(descriptor: int, begin: int, size: int) -> None: ...


def find_data(descriptor: int, position: int, end: int) -> tuple[int, int]:
    """(begin, end) of the next range from `position` on that may hold something; (end, end) when only holes follow."""
    if not _FINDS_HOLES:
        return position, end
    try:
        begin = os.lseek(descriptor, position, os.SEEK_DATA)
        return begin, min(os.lseek(descriptor, begin, os.SEEK_HOLE), end)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but holes until the end
            return end, end
        return position, end


_LIBC = ctypes.CDLL(None, use_errno=True)
_FINDS_HOLES = hasattr(os, "SEEK_DATA") and hasattr(os, "SEEK_HOLE")
allocate_blocks = getattr(os, "posix_fallocate", _fill_holes)
read_into = getattr(os, "preadv", _read_each)
write_from = getattr(os, "pwritev", _write_each)
sync_data = getattr(os, "fdatasync", _full_sync if hasattr(fcntl, "F_FULLFSYNC") else os.fsync)
sync_filesystem = _syncfs if hasattr(_LIBC, "syncfs") else _sync_everything
forget_cached = _forget if hasattr(os, "posix_fadvise") else _forget_nothing


# -- locks -----------------------------------------------------------------------------------------


def _lock_record(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _is_record_locked(descriptor: int) -> bool:
    found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    return _FLOCK.unpack(found)[0] != fcntl.F_UNLCK


def _lock_whole(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_whole_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


_LOCKS_RECORDS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")  # macOS has a struct flock of its own
lock_file = _lock_record if _LOCKS_RECORDS else _lock_whole  # of the open file; OSError while another has it
is_file_locked = _is_record_locked if _LOCKS_RECORDS else _is_whole_locked  # for a descriptor of its own


# -- sockets and tasks -----------------------------------------------------------------------------


def _send_copied(out: int, file: int, offset: int, count: int) -> int:
    data = os.pread(file, min(count, _SEND_BYTES_MAX), offset)
    return os.write(out, data) if data else 0


def _sleep_a_moment() -> None:
    time.sleep(0)


send_file = getattr(os, "sendfile", _send_copied)
yield_core = getattr(os, "sched_yield", _sleep_a_moment)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, which is faster; else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# -- memory ----------------------------------------------------------------------------------------


def keep_freed_memory() -> None:
    """Keep up to 32 MiB of freed memory in this process, for the next large buffers.

    glibc would return it to the system and ask for it again: with frames of 1 MiB, a broker then spends a quarter of
    its time on page faults.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
