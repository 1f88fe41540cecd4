"""Takes away what Linux has and macOS has not, before Twinlog is imported: `pytest -p tests.without_linux …`."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import sys
import time
from types import ModuleType
from typing import Any

GONE: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("posix_fallocate", "posix_fadvise", "fdatasync", "preadv", "pwritev", "sendfile", "sched_yield"),
        *("copy_file_range", "splice", "memfd_create", "eventfd", "pidfd_open", "getrandom", "sched_getaffinity"),
        *("SEEK_DATA", "SEEK_HOLE", "RWF_NOWAIT", "O_PATH", "O_DIRECT"),
    ),
    socket: ("MSG_MORE", "TCP_QUICKACK", "TCP_USER_TIMEOUT"),
    fcntl: ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"),
    mmap: ("MADV_REMOVE", "MADV_HUGEPAGE", "MAP_POPULATE"),
    time: ("CLOCK_BOOTTIME",),
}


class _Libc:
    """The C library without Linux's own functions."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("syncfs", "renameat2"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def remove_linux_calls() -> None:
    assert not [name for name in sys.modules if name.startswith("twinlog.base")], "too late: Twinlog is imported"
    for module, names in GONE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # an import of it fails
    real = ctypes.CDLL
    ctypes.CDLL = lambda *args, **named: _Libc(real(*args, **named))  # type: ignore[assignment,misc]


remove_linux_calls()
