"""What of a file is in memory, and how to get the rest there without page faults."""

from __future__ import annotations

import contextlib
import errno
import os

from twinlog.base.system_calls import RWF_NOWAIT, read_into

PIECE_BYTES = 256 * 1024
_UNUSED = memoryview(bytearray(PIECE_BYTES))  # what the kernel copies here is not read


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def bytes_in_memory(descriptor: int, position: int, size: int) -> int:
    """How many bytes of a file from `position` on are in memory, up to `size` or the first one that is not.

    Where the system cannot answer, all of them count. Linux starts to read missing ones, without waiting for them.
    """
    found = 0
    while RWF_NOWAIT and found < size:
        take = min(size - found, PIECE_BYTES)
        try:
            count = read_into(descriptor, [_UNUSED[:take]], position + found, RWF_NOWAIT)
        except BlockingIOError:
            return found
        except OSError:  # a file system without this call
            return size
        found += count
        if count < take:
            return found
    return size


def read_ahead(descriptor: int, position: int, size: int) -> None:
    """Have these bytes of a file in memory soon, in one system call. Errors do not matter: whoever needs them reads."""
    pieces, rest = divmod(size, PIECE_BYTES)
    unused = memoryview(bytearray(PIECE_BYTES))
    with contextlib.suppress(OSError):
        read_into(descriptor, [*([unused] * pieces), unused[:rest]], position)


def read_through(descriptor: int, position: int, size: int) -> None:
    """Wait until these bytes of a file are in memory. A file that was closed meanwhile needs nothing."""
    unused, end = memoryview(bytearray(min(size, PIECE_BYTES))), position + size
    while position < end:
        try:
            count = read_into(descriptor, [unused[: end - position]], position)
        except OSError as error:
            if error.errno == errno.EIO:  # a page fault would end the process with SIGBUS
                raise
            return
        if not count:
            return
        position += count
