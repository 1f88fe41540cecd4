"""How a file is replaced: temporary file, fsync, rename, fsync of the directory. The one owner of these steps.

    <path>.tmp   written and synced, with the mode and owner of the old file
    <path>.bak   the old content, for callers that ask for it
    <path>       the temporary file takes this name
    directory    synced: from now on the new content survives a crash of the machine

A step that fails, or a crash between two steps, leaves the old content or the new one, never a part of either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import BinaryIO

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.safe_files import copy_file, make_directory, open_file, refuse_link

# This user may not give files away; the user is unknown in this namespace; the file system, often of a network, cannot.
_OWNER_STAYS = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def replace_file(
    path: str | os.PathLike[str],
    chunks: Iterable[bytes],
    modes: Modes | None = PRIVATE,
    *,
    keep_old: Callable[[Path], None] | None = None,
    temporary: Path | None = None,
    modified_ns: int | None = None,
) -> None:
    """Replace the content of `path` by `chunks`; it is durable when this returns. Parameters as for `replacing`.

    The file gets the modification time `modified_ns`, if it is given and the file system takes it.
    """
    with replacing(path, modes, keep_old=keep_old, temporary=temporary) as out:
        out.writelines(chunks)
        if modified_ns is not None:
            out.flush()  # a later write would change the time again
            with contextlib.suppress(OSError):
                os.utime(out.fileno(), ns=(modified_ns, modified_ns))


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str],
    modes: Modes | None = PRIVATE,
    *,
    keep_old: Callable[[Path], None] | None = None,
    temporary: Path | None = None,
) -> Generator[BinaryIO]:
    """A new file, which takes the name `path` when the block ends, and is removed when the block raises.

    An old file passes on its mode and owner; a new name gets `modes`. With modes None the umask decides, and nothing
    is passed on, as for a table that belongs to a team. `keep_old` is called with `path` before the rename, for example
    `keep_backup`. `temporary` is another name than `<path>.tmp` in the same directory, for files that several
    processes may replace at once.
    """
    path = Path(path)
    temporary = temporary or sibling(path, "tmp")
    if modes is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        make_directory(path.parent, modes)
    temporary.unlink(missing_ok=True)  # of a process that was killed
    descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes)
    try:
        with open(descriptor, "wb") as out:
            if modes is not None and (before := _stat_file(path)) is not None:
                _keep_owner(out.fileno(), before)
                os.fchmod(out.fileno(), stat.S_IMODE(before.st_mode))
            yield out
            out.flush()
            os.fsync(out.fileno())
        if keep_old is not None:
            keep_old(path)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed names in `path` durable: a synced file may still be lost with its name."""
    _sync(path, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that another program, or a library, wrote."""
    _sync(path)


def _sync(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    spare.unlink(missing_ok=True)  # a rename does nothing when both names are of one file, as after a save that failed


def refuse_links(path: Path) -> None:
    """UnsafeFile when `path`, its backup or one of the temporary files is a link."""
    for one in (path, *(sibling(path, suffix) for suffix in ("tmp", "bak", "bak.tmp"))):
        refuse_link(one)


def sibling(path: Path, suffix: str) -> Path:
    """`<path>.<suffix>`."""
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


def _stat_file(path: Path) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
