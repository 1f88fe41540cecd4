"""One metadata file that is always whole: old content or new, never a part of either.

A save writes `<file>.tmp`, syncs it, keeps the old content as `<file>.bak`, renames, and syncs the
directory. A load falls back on `<file>.bak`. A main file that could not be read is evidence: the first
save after such a load moves it to `<file>.broken-<n>` rather than over it. With a checksum (see `json_checksum`), a
file that an operator has changed by hand is used as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from twinlog.base.atomic_file import keep_backup, refuse_links, replace_file, sibling
from twinlog.base.clock import wall_clock_ns
from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.base.json_checksum import is_changed, with_checksum
from twinlog.base.safe_files import read_file
from twinlog.metadata.errors import BrokenFile
from twinlog.wire.errors import WireError

T = TypeVar("T")


class FileWithBackup:
    """A file with a backup. After a load, `problem` is what was wrong with the main file, or None, `from_backup`
    whether its backup was read instead, and `is_changed` whether somebody has changed what was read since its save.
    """

    def __init__(self, path: str | os.PathLike[str], modes: Modes = PRIVATE, *, has_checksum: bool = False) -> None:
        self.path = Path(path)
        self._modes = modes
        self._has_checksum = has_checksum
        self.problem: str | None = None
        self.from_backup = self.is_changed = False

    def load(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` returns for the file or its backup; None when both are missing or empty."""
        self.problem, self.from_backup, self.is_changed = None, False, False
        refuse_links(self.path)
        value, why = self._read(self.path, parse)
        if value is not None:
            return value
        self.problem = why
        backup, backup_why = self._read(sibling(self.path, "bak"), parse)
        if backup is None and why and backup_why:
            raise BrokenFile(str(self.path), why, backup_why)
        # Java: a broken file without a backup starts from the defaults; ours stays on disk beside the new one.
        self.from_backup = backup is not None
        return backup

    def save(self, chunks: Iterable[bytes]) -> None:
        """Replace the content; after this returns it survives a crash of the machine."""
        keep_old = keep_backup if self.problem is None else self._set_aside
        saved_ns = wall_clock_ns() if self._has_checksum else None
        if saved_ns is not None:
            chunks = with_checksum(chunks, saved_ns)
        replace_file(self.path, chunks, self._modes, keep_old=keep_old, modified_ns=saved_ns)

    def _set_aside(self, broken: Path) -> None:
        number = 1
        while (aside := sibling(broken, f"broken-{number}")).exists():
            number += 1
        if broken.exists():
            os.replace(broken, aside)
        self.problem = None  # also if a later step of the save fails: what stands here next is not broken

    def _read(self, path: Path, parse: Callable[[bytes], T]) -> tuple[T | None, str | None]:
        """The parsed value, or why the file cannot be read; neither for a missing or blank file."""
        try:
            data = read_file(path)
        except FileNotFoundError:
            return None, None
        if not data.strip(b" \t\r\n\0"):
            return None, None
        try:
            changed = self._has_checksum and is_changed(data, os.stat(path).st_mtime_ns)
            value = parse(data)
        except (WireError, ValueError, RecursionError) as error:
            return None, f"{type(error).__name__}: {error}"
        self.is_changed = changed
        return value, None
