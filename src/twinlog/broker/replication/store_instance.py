"""The id of a store directory, by which a master recognises a replica that connects again."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from twinlog.base.atomic_file import replace_file
from twinlog.base.file_modes import Modes
from twinlog.base.safe_files import read_file
from twinlog.store.errors import StoreUnusable, system_errors_as


def store_instance(root: Path, modes: Modes) -> str:
    """The id in config/twinlogInstance; made at the first start, the same at every later one."""
    path = root / "config" / "twinlogInstance"
    with system_errors_as(StoreUnusable, root):
        with contextlib.suppress(FileNotFoundError):
            text = read_file(path).decode().strip()
            if text:
                return text
        text = secrets.token_hex(16)
        replace_file(path, [f"{text}\n".encode()], modes)
    return text
