"""How a server opens, makes and replaces files: the one owner of it, for stores, metadata and configuration.

Whoever can write to a directory can put a link where a server is about to write, and the server would then overwrite
what the link leads to, with the server's rights. Therefore:

    a file         is never reached through a link that has its name, and is a plain file (no device, no pipe)
    a directory    may be a link, as operators put a commit log on another disk; but only root's or this user's
    a new name     gets the modes it is given, whatever the umask; what exists keeps its mode

A replaced file is whole at any moment: old content or new, never a part of either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from twinlog.base.durable_names import sync_directory
from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.trusted_path import foreign_link

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last: a pipe in a file's place would wait for its other end
# This user may not give files away; the user is unknown in this namespace; the file system, often of a network, cannot.
_OWNER_STAYS = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_RACES_MAX = 100  # a file that comes and goes that often under our hands is not a lock or a table


class UnsafeFile(OSError):
    """Something in a file's place that another user may have put there; nothing behind it was touched."""


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
    """UnsafeFile when `path` is a link, wherever it leads; a path that does not exist is fine."""
    if os.path.islink(path):
        raise UnsafeFile(
            f"{os.fspath(path)} is a symbolic link, and a server's files are never reached through one: "
            f"put the file itself there, or remove the link"
        )


def refuse_links(path: Path) -> None:
    """The same for a file that is replaced: its temporary file and its backup must not be links either."""
    for one in (path, *(sibling(path, suffix) for suffix in ("tmp", "bak", "bak.tmp"))):
        refuse_link(one)


def make_directory(path: str | os.PathLike[str], modes: Modes = PRIVATE) -> None:
    """Make `path` and what is missing above it; UnsafeFile when another user's link leads there."""
    here, missing = Path(path), []
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
    """UnsafeFile when the way to `directory` leads through a link of another user."""
    if problem := foreign_link(directory):
        raise UnsafeFile(
            f"{os.fspath(directory)} is reached through a link of another user ({problem}): make the link as this "
            f"server's user or as root (chown -h), or name the directory itself"
        )


def replace_file(
    path: str | os.PathLike[str], chunks: Iterable[bytes], modes: Modes = PRIVATE, *, backup: bool = False
) -> None:
    """Replace the content, durably; mode and owner stay, and with `backup` the old content is kept as `.bak`."""
    path = Path(path)
    temporary = write_beside(path, chunks, modes)
    if backup:
        keep_backup(path)
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_beside(path: Path, chunks: Iterable[bytes], modes: Modes = PRIVATE) -> Path:
    """Write what shall replace `path` to `<path>.tmp`, durably, with the mode and owner of `path`; returns its name."""
    make_directory(path.parent, modes)
    temporary = sibling(path, "tmp")
    temporary.unlink(missing_ok=True)  # of a server that was killed
    with open(open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes), "wb") as out:
        if (before := _stat_file(path)) is not None:
            _keep_owner(out.fileno(), before)
            os.fchmod(out.fileno(), stat.S_IMODE(before.st_mode))
        out.writelines(chunks)
        out.flush()
        os.fsync(out.fileno())
    return temporary


def keep_backup(path: Path) -> None:
    """Give what `path` holds, if anything, the second name `.bak`: both names stay readable throughout."""
    found = _stat_file(path)
    if found is None or not found.st_size:
        return
    spare = sibling(path, "bak.tmp")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:  # a file system without hard links
        copy_file(path, spare, Modes(stat.S_IMODE(found.st_mode)))
    os.replace(spare, sibling(path, "bak"))


def copy_file(path: Path, copy: Path, modes: Modes = PRIVATE) -> None:
    """Copy the bytes of `path` to a new file."""
    with (
        open(open_file(path, os.O_RDONLY), "rb") as source,
        open(open_file(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes), "wb") as out,
    ):
        shutil.copyfileobj(source, out, 1024 * 1024)


def sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except OSError as error:
        if error.errno not in _OWNER_STAYS:
            raise


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


def _stat_file(path: Path) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
