"""The operator's configuration file, kept in step with settings that changed while a server runs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from twinlog.settings.broker_conf import read_text
from twinlog.settings.durable_names import sync_directory
from twinlog.settings.properties import replace_values


def rewrite_file(path: str | os.PathLike[str], changed: Mapping[str, str], *, missing_ok: bool = False) -> None:
    """Set these keys; comments and other lines stay, the file's owner and permissions too.

    The file is whole at any moment, and what it held before is beside it as `.bak`.
    """
    target = Path(path).resolve()  # a link goes on pointing to the file that changes
    before = target.stat() if target.exists() else None
    text = "" if before is None and missing_ok else read_text(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(replace_values(text, changed))
        os.fchmod(out.fileno(), stat.S_IMODE(before.st_mode) if before is not None else 0o644)
        if before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(out.fileno(), before.st_uid, before.st_gid)
        out.flush()
        os.fsync(out.fileno())
    if before is not None:
        _keep(target)
    os.replace(temporary, target)
    sync_directory(target.parent)


def _keep(target: Path) -> None:
    spare = target.with_name(f"{target.name}.bak.tmp")
    spare.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a file system without hard links keeps no copy
        os.link(target, spare)
        os.replace(spare, target.with_name(f"{target.name}.bak"))
