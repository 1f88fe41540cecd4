"""Backups of log bytes before they are cut: they may be the only copy of a message.

<root>/set-aside/<milliseconds>/commitlog/<20 digits>   whole segments, by hard link
<root>/set-aside/<milliseconds>/tail-<begin>-<end>      the bytes of a cut tail
"""

from __future__ import annotations

import os
from pathlib import Path

from twinlog.base.safe_files import copy_file
from twinlog.store.file_ops import FileOps
from twinlog.store.log.commit_log import CommitLog

BACKUP_DIRECTORY = "set-aside"


def back_up_segments(root: Path, commit_log: CommitLog, now_ms: int, ops: FileOps) -> Path:
    """Give every segment a second name in the backup; returns its directory."""
    target = root / BACKUP_DIRECTORY / str(now_ms) / "commitlog"
    ops.make_directory(target)
    for segment in commit_log.segments:
        segment.flush()
        try:
            os.link(segment.path, target / segment.path.name)
        except OSError:  # another file system
            copy_file(segment.path, target / segment.path.name, ops.modes)
    ops.flush_directory(target)
    return target


def back_up_range(root: Path, commit_log: CommitLog, begin: int, end: int, now_ms: int, ops: FileOps) -> Path:
    """Copy the bytes from `begin` to `end` into a file of their own, durably; returns its path."""
    target = root / BACKUP_DIRECTORY / str(now_ms) / f"tail-{begin}-{end}"
    ops.make_directory(target.parent)
    target.unlink(missing_ok=True)  # of an attempt that was killed
    with open(ops.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        for segment, first, last in commit_log.ranges(begin, end):
            file.write(segment.view(first, last - first))
        file.flush()
        ops.flush(file.fileno())
    ops.flush_directory(target.parent)
    return target
