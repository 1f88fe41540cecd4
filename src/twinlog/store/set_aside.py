"""Keeping what is about to be cut: nothing that may be the only copy of a message is ever just deleted.

<root>/set-aside/<milliseconds>/commitlog/<20 digits>   whole segments, by hard link
<root>/set-aside/<milliseconds>/tail-<begin>-<end>      the bytes of a cut tail
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from twinlog.store.commit_log import CommitLog
from twinlog.store.file_ops import FileOps

DIRECTORY = "set-aside"


def keep_segments(root: Path, commit_log: CommitLog, now_ms: int, ops: FileOps) -> Path:
    """Give every segment a second name outside the log; returns their directory."""
    target = root / DIRECTORY / str(now_ms) / "commitlog"
    target.mkdir(parents=True)
    for segment in commit_log.segments:
        segment.flush()
        try:
            os.link(segment.path, target / segment.path.name)
        except OSError:  # another file system
            shutil.copyfile(segment.path, target / segment.path.name)
    ops.flush_directory(target)
    return target


def keep_range(root: Path, commit_log: CommitLog, begin: int, end: int, now_ms: int, ops: FileOps) -> Path:
    """Copy the bytes from `begin` to `end` into a file of their own, durably; returns its path."""
    target = root / DIRECTORY / str(now_ms) / f"tail-{begin}-{end}"
    target.parent.mkdir(parents=True)
    with target.open("xb") as file:
        for segment, first, last in commit_log.ranges(begin, end):
            file.write(segment.view(first, last - first))
        file.flush()
        ops.flush(file.fileno())
    ops.flush_directory(target.parent)
    return target
