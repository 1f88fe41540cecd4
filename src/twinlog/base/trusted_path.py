"""Whether another user could change what a path leads to.

A path is as safe as its weakest part. A user who may write to a directory can rename what is in it and put something
else in its place, and the owner of a link decides where it leads. A path is trusted when all its directories and links
belong to root or to the user of this process, and no other user may write to its directories. A directory with the
sticky bit, such as /tmp, may be open to all, except as the last part: only an owner can rename there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_LINKS_MAX = 40  # as many as the kernel follows


def why_untrusted(path: str | os.PathLike[str], *, trust_groups: bool = False) -> str | None:
    """What is wrong with the first part that is not safe; None when only root and this user can change `path`.

    With `trust_groups`, users who may write through a directory's group count as this user.
    """
    others = stat.S_IWOTH if trust_groups else stat.S_IWOTH | stat.S_IWGRP
    parts = list(walk_path(path))
    for number, (part, found) in enumerate(parts, 1):
        if problem := why_foreign(part, found):
            return problem
        is_shared = not stat.S_ISLNK(found.st_mode) and found.st_mode & others
        if is_shared and (number == len(parts) or not found.st_mode & stat.S_ISVTX):
            return f"others may write to {part} (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def foreign_link(path: str | os.PathLike[str]) -> str | None:
    """The first link on the way to `path` that another user made, in words; None when there is none."""
    for part, found in walk_path(path):
        if stat.S_ISLNK(found.st_mode) and (problem := why_foreign(part, found)):
            return problem
    return None


def why_foreign(path: Path, found: os.stat_result) -> str | None:
    """Why what `os.lstat` found at `path` belongs to another user, or None."""
    if found.st_uid in (0, os.geteuid()):
        return None
    return f"{path} belongs to user {found.st_uid}"


def walk_path(path: str | os.PathLike[str]) -> Iterator[tuple[Path, os.stat_result]]:
    """Every directory and link that the kernel passes on its way to `path`, with its `os.lstat`."""
    here, left, links = Path("/"), list(Path(path).absolute().parts[1:]), 0
    yield here, os.lstat(here)
    while left:
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        entry = here / name
        found = os.lstat(entry)
        yield entry, found
        if not stat.S_ISLNK(found.st_mode):
            here = entry
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(entry))
        target = Path(os.readlink(entry))
        if target.is_absolute():
            here, left = Path("/"), [*target.parts[1:], *left]
        else:
            left = [*target.parts, *left]
