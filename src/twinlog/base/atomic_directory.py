"""How a directory is replaced: it exchanges its name with a new one in one step of the file system."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from twinlog.base.atomic_file import sync_directory

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_LISTING_S = 0.2  # far more than it takes from opening a directory to the last of its names
_WITHOUT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class CannotExchange(OSError):
    """A system or file system without an exchange of names; nothing has changed."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.ENOTSUP, f"the file system of {path} cannot exchange two directories ({why})")

    def __str__(self) -> str:
        return str(self.strerror)


def exchange_directories(one: Path, other: Path) -> None:
    """Swap two directories in one step, so that readers never see neither or both."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise CannotExchange(one, "this system has no renameat2")
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in _WITHOUT_EXCHANGE:
            raise CannotExchange(one, os.strerror(code))
        raise OSError(code, os.strerror(code), str(one), None, str(other))


def replace_directory(path: Path, new: Path) -> None:
    """Give the directory `new` the name `path`, and remove what had it; without an exchange, `path` is briefly gone."""
    try:
        exchange_directories(new, path)
    except FileNotFoundError:
        os.rename(new, path)
    except CannotExchange:
        if path.exists():
            shutil.rmtree(path)
        os.rename(new, path)
    sync_directory(path.parent)
    remove_exchanged(new)


def remove_exchanged(directory: Path, pause: Callable[[float], None] = time.sleep) -> None:
    """Remove the side of an exchange that is out of use, when nobody lists it any more.

    A reader may have opened it by its old name, and read no entry yet: if files were removed now, it would take the
    few that are left for all.
    """
    if directory.exists():
        pause(_LISTING_S)
        shutil.rmtree(directory, ignore_errors=True)
