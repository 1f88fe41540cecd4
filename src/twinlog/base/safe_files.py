"""How a server opens and makes files and directories, for stores, metadata and configuration.

A user who can write to a directory can put a link where a server is about to write. The server would then overwrite
the link's target, with the server's rights. Therefore:

    a file         is never opened through a link with its name, and must be a plain file (no device, no pipe)
    a directory    may be a link, since operators put a commit log on another disk; but only root's or this user's
    a new name     gets the modes it is given, whatever the umask; what exists keeps its mode

`atomic_file` replaces files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.trusted_path import foreign_link

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last: a pipe in a file's place would wait for its other end
_RACES_MAX = 100  # a file that other processes make and remove that often is not a lock or a table


class UnsafeFile(OSError):
    """Something in a file's place that another user may have put there; the link's target was not touched."""


def open_file(path: str | os.PathLike[str], flags: int, modes: Modes | None = PRIVATE) -> int:
    """A descriptor of the plain file at `path`; one that O_CREAT makes has exactly `modes.file`.

    Without modes the umask decides, as for a table that belongs to a team.
    """
    if flags & os.O_EXCL:
        return _open_new(path, flags, modes)
    if not flags & os.O_CREAT:
        return _open_existing(path, flags)
    for _ in range(_RACES_MAX):
        with contextlib.suppress(FileNotFoundError):
            return _open_existing(path, flags & ~os.O_CREAT)
        with contextlib.suppress(FileExistsError):  # another process was faster, as with a lock that two want
            return _open_new(path, flags | os.O_EXCL, modes)
    return _open_new(path, flags | os.O_EXCL, modes)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the plain file at `path`."""
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def refuse_link(path: str | os.PathLike[str]) -> None:
    """UnsafeFile when `path` is a link, to whatever target; a path that does not exist is fine."""
    if os.path.islink(path):
        raise UnsafeFile(
            f"{os.fspath(path)} is a symbolic link, and a server's files are never reached through one: "
            f"put the file itself there, or remove the link"
        )


def make_directory(path: str | os.PathLike[str], modes: Modes = PRIVATE) -> None:
    """Make `path` and what is missing above it; UnsafeFile when another user's link leads there."""
    here = Path(path)
    missing: list[Path] = []
    while not os.path.lexists(here):
        missing.append(here)
        here = here.parent
    refuse_foreign_link(here)
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another thread was faster
            os.mkdir(one, 0o700)
            if modes.directory != 0o700:
                os.chmod(one, modes.directory)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))


def refuse_foreign_link(directory: str | os.PathLike[str]) -> None:
    """UnsafeFile when `directory` is reached through a link of another user."""
    if problem := foreign_link(directory):
        raise UnsafeFile(
            f"{os.fspath(directory)} is reached through a link of another user ({problem}): make the link as this "
            f"server's user or as root (chown -h), or name the directory itself"
        )


def copy_file(path: Path, copy: Path, modes: Modes = PRIVATE) -> None:
    """Copy the bytes of `path` to a new file."""
    with (
        open(open_file(path, os.O_RDONLY), "rb") as source,
        open(open_file(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes), "wb") as out,
    ):
        shutil.copyfileobj(source, out, 1024 * 1024)


def _open_new(path: str | os.PathLike[str], flags: int, modes: Modes | None) -> int:
    refuse_link(path)
    descriptor = os.open(path, flags | _SAFE, 0o666 if modes is None else 0o600)
    if modes is not None and modes.file != 0o600:
        os.fchmod(descriptor, modes.file)
    return descriptor


def _open_existing(path: str | os.PathLike[str], flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _SAFE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeFile(f"{os.fspath(path)} is not a plain file: remove it, or move it elsewhere")
    return descriptor
