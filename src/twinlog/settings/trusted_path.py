"""Whether another user could change what a path leads to.

A path is as safe as its weakest part. Whoever may write to a directory can rename what lies in it and put something
else in its place, and whoever owns a link decides where it leads. Trusted is a path whose directories and links all
belong to root or to the user of this process, and whose directories no other user may write to. A directory with the
sticky bit, such as /tmp, may be written to by all on the way to the last part: only an owner can rename there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_LINKS_MAX = 40  # as many as the kernel follows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_untrusted(path: str | os.PathLike[str]) -> str | None:
    """What is wrong with the first part that is not safe; None when only root and this user can change `path`."""
    here, left, links = Path("/"), list(Path(path).absolute().parts[1:]), 0
    while True:
        if problem := _why_directory(here, is_last=not left):
            return problem
        if not left:
            return None
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        entry = here / name
        found = os.lstat(entry)
        if not stat.S_ISLNK(found.st_mode):
            here = entry
            continue
        links += 1
        if links > _LINKS_MAX:
            return f"{entry} leads through more than {_LINKS_MAX} links"
        if problem := why_foreign(entry, found):
            return problem
        target = Path(os.readlink(entry))
        here = Path("/") if target.is_absolute() else here
        left = [*(target.parts[1:] if target.is_absolute() else target.parts), *left]


def why_foreign(path: Path, found: os.stat_result) -> str | None:
    """Why what `os.lstat` found at `path` is in another user's hands, or None."""
    if found.st_uid in (0, os.geteuid()):
        return None
    return f"{path} belongs to user {found.st_uid}"


def _why_directory(path: Path, *, is_last: bool) -> str | None:
    found = os.lstat(path)
    if problem := why_foreign(path, found):
        return problem
    shared = found.st_mode & _OTHERS_WRITE
    if shared and (is_last or not found.st_mode & stat.S_ISVTX):
        return f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return None
