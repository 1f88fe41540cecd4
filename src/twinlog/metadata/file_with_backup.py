"""One metadata file that is always whole: old content or new, never a part of either.

A save writes `<file>.tmp`, syncs it, keeps the old content as `<file>.bak`, renames, and syncs the
directory. A load falls back on `<file>.bak`. A main file that could not be read is evidence: the first
save after such a load moves it to `<file>.broken-<n>` rather than over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from twinlog.base.atomic_file import keep_backup, refuse_links, replace_file, sibling
from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.safe_files import read_file
from twinlog.metadata.errors import BrokenFile
from twinlog.wire.errors import WireError

T = TypeVar("T")


class FileWithBackup:
    """A file with a backup. After a load, `problem` is what was wrong with the main file, or None, and `from_backup`
    whether its backup was read instead.
    """

    def __init__(self, path: str | os.PathLike[str], modes: Modes = PRIVATE) -> None:
        self.path = Path(path)
        self._modes = modes
        self.problem: str | None = None
        self.from_backup = False

    def load(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` returns for the file or its backup; None when both are missing or empty."""
        self.problem, self.from_backup = None, False
        refuse_links(self.path)
        value, why = _read(self.path, parse)
        if value is not None:
            return value
        self.problem = why
        backup, backup_why = _read(sibling(self.path, "bak"), parse)
        if backup is None and why and backup_why:
            raise BrokenFile(str(self.path), why, backup_why)
        # Java: a broken file without a backup starts from the defaults; ours stays on disk beside the new one.
        self.from_backup = backup is not None
        return backup

    def save(self, chunks: Iterable[bytes]) -> None:
        """Replace the content; after this returns it survives a crash of the machine."""
        keep_old = keep_backup if self.problem is None else self._set_aside
        replace_file(self.path, chunks, self._modes, keep_old=keep_old)

    def _set_aside(self, broken: Path) -> None:
        number = 1
        while (aside := sibling(broken, f"broken-{number}")).exists():
            number += 1
        if broken.exists():
            os.replace(broken, aside)
        self.problem = None  # also if a later step of the save fails: what stands here next is not broken


def _read(path: Path, parse: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    """The parsed value, or why the file cannot be read; neither for a missing or blank file."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None, None
    if not data.strip(b" \t\r\n\0"):
        return None, None
    try:
        return parse(data), None
    except (WireError, ValueError, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"
