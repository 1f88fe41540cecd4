"""The operator's configuration file, rewritten when a request changes settings of a running server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from twinlog.base.atomic_file import keep_backup, replace_file
from twinlog.settings.broker_conf import read_text
from twinlog.settings.properties import replace_values


def rewrite_file(path: str | os.PathLike[str], changed: Mapping[str, str], *, missing_ok: bool = False) -> None:
    """Set these keys; comments and other lines stay, the file's owner and permissions too.

    The file is whole at any moment, and what it held before is beside it as `.bak`.
    """
    target = Path(path).resolve()  # the link stays, and the file behind it changes
    text = "" if missing_ok and not target.exists() else read_text(target)
    replace_file(target, [replace_values(text, changed).encode()], keep_old=keep_backup)
