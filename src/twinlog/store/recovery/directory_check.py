"""Checks the directories of a store before the first file in them is written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from twinlog.base.safe_files import refuse_foreign_link
from twinlog.base.trusted_path import why_untrusted
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


def check_directories(root: Path, others: Iterable[str]) -> None:
    """Refuse directories that another user's link leads to; warn where another user could put one.

    `root` exists; `others` are directories of the same store that may lie elsewhere.
    """
    with os.scandir(root) as entries:
        inner = [entry.path for entry in entries if entry.is_symlink() and entry.is_dir()]
    for path in [*inner, *(path for path in others if os.path.isdir(path))]:
        refuse_foreign_link(path)
    # Volumes of containers often belong to a group, which then is the broker alone.
    if problem := why_untrusted(root, trust_groups=True):
        log.warning("other users could change this store: close its directories to them", why=problem)
