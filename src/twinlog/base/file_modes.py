"""Who may read what a server writes: the modes of new files and directories, as octal text in settings."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass

_OCTAL = re.compile(r"0?[0-7]{3}")


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes of new files and directories, whatever the umask; what exists keeps its own."""

    file: int = 0o600
    directory: int = 0o700


PRIVATE = Modes()


def parse_modes(file: str, directory: str) -> Modes:
    """The modes in two checked texts."""
    return Modes(int(file, 8), int(directory, 8))


def check_file_mode(text: str) -> str | None:
    return _check(text, stat.S_IRUSR | stat.S_IWUSR, "0600, or 0640 for a group that may read")


def check_directory_mode(text: str) -> str | None:
    return _check(text, stat.S_IRWXU, "0700, or 0750 for a group that may read")


def _check(text: str, needed: int, examples: str) -> str | None:
    if not _OCTAL.fullmatch(text):
        return f"is not a mode of three octal digits; write {examples}"
    mode = int(text, 8)
    if mode & needed != needed:
        return f"would close the store to its own broker; write {examples}"
    if mode & stat.S_IWOTH:
        return f"would let every user change the store; write {examples}"
    return None
