"""The operator's configuration file, rewritten when a request changes settings of a running server."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from twinlog.base.atomic_file import keep_backup, replace_file
from twinlog.settings.broker_conf import read_text
from twinlog.settings.conf import is_secret
from twinlog.settings.properties import parse_properties, replace_values


def rewrite_file(path: str | os.PathLike[str], changed: Mapping[str, str], *, missing_ok: bool = False) -> None:
    """Set these keys; comments and other lines stay, the file's owner and permissions too.

    The file is whole at any moment, and what it held before is beside it as `.bak`.
    """
    target = Path(path).resolve()  # the link stays, and the file behind it changes
    text = "" if missing_ok and not target.exists() else read_text(target)
    replace_file(target, [replace_values(text, changed).encode()], keep_old=keep_backup)


def exposed_secret(path: str | os.PathLike[str]) -> str | None:
    """The first key with a secret in a file that every user of this machine can read; None when there is none."""
    target = Path(path).resolve()
    if not target.stat().st_mode & stat.S_IROTH:
        return None
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in target.parents):
        return None  # others do not get as far as the file
    entries = parse_properties(read_text(target), source=target.name)
    return next((entry.key for entry in entries if is_secret(entry.key)), None)
