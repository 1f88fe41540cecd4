"""The files of a Parquet archive: adding a batch, exchanging a partition, finishing a killed run.

Every change that readers see is one rename, made under a lock that archive and compaction share. What a step relies on
is durable before it: staged files and Spark's offsets before the commit that names them, moves before the next commit,
an exchange before the old files are removed. So a power cut leaves what a kill leaves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from twinlog.base.atomic_directory import CannotExchange, exchange_directories, remove_exchanged
from twinlog.base.atomic_file import sync_directory
from twinlog.base.safe_files import open_file
from twinlog.spark.jobs.archive.layout import (
    COMPACTING,
    STAGING,
    ArchiveCommit,
    BadArchive,
    StagedFile,
    load_commit,
    plan_commit,
    save_commit,
)

COMPACT_LOCK = "_compact.lock"


class Ops:
    """The file operations of a run; tests make one of them fail."""

    def save_commit(self, root: Path, commit: ArchiveCommit) -> None:
        save_commit(root, commit)

    def move(self, old: Path, new: Path) -> None:
        new.parent.mkdir(parents=True, exist_ok=True)
        os.rename(old, new)

    def exchange(self, one: Path, other: Path) -> None:
        try:
            exchange_directories(one, other)
        except CannotExchange as error:
            hint = "compact where ext4, xfs, btrfs or tmpfs holds the archive, or archive with --format delta"
            raise BadArchive(f"{error}: {hint}") from error

    def sync(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        sync_directory(directory)

    def remove_exchanged(self, directory: Path) -> None:
        remove_exchanged(directory)

    def remove(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)


def commit_batch(
    root: Path, batch: int, query: str, run: str, staged: Iterable[StagedFile], ops: Ops | None = None
) -> ArchiveCommit:
    """Add these files to the archive, as batch `batch`."""
    with held(root / "_lock"):
        commit = plan_commit(load_commit(root), batch, query, run, staged)
        ops = ops or Ops()
        ops.save_commit(root, commit)
        _move(root, commit, ops)
    return commit


def finish_last_batch(root: Path, ops: Ops | None = None) -> ArchiveCommit:
    """Finish what a killed run committed, and remove what it did not commit; returns the last commit."""
    ops = ops or Ops()
    with held(root / "_lock"):
        commit = load_commit(root)
        _move(root, commit, ops)
        ops.remove(root / STAGING)
    with contextlib.suppress(BadArchive), held(root / COMPACT_LOCK, "a compaction is running"):
        remove_aside(root, ops)
    return commit


def _move(root: Path, commit: ArchiveCommit, ops: Ops) -> None:
    for old, new in commit.moves:
        if (root / old).exists():  # otherwise it was moved before the run was killed
            ops.move(root / old, root / new)
    if commit.moves:  # the next commit no longer names them
        partitions = {(root / new).parent for _, new in commit.moves}
        for directory in sorted({*partitions, *(one.parent for one in partitions), root}):
            if directory.is_dir():  # days may be removed by hand
                ops.sync(directory)


def partition_files(root: Path, partition: str) -> dict[str, int]:
    """The data files that readers of a partition see, and their sizes."""
    return {
        path.name: path.stat().st_size for path in sorted((root / partition).iterdir()) if path.suffix == ".parquet"
    }


def partitions(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("topic=*/day=*") if path.is_dir())


def swap_place(root: Path) -> Path:
    """The directory for the new side of an exchange, with its final file names.

    It is beside the archive, where no pattern below the archive finds it. If that is another file system or not
    writable, it is inside: there, **/*.parquet finds both sides between the exchange and the removal.
    """
    inside, beside = root / COMPACTING, _beside(root)
    probe = inside / "probe"
    try:
        probe.mkdir(parents=True, exist_ok=True)
        beside.mkdir(mode=0o700, exist_ok=True)  # the archive itself may be private
        os.rename(probe, beside / probe.name)
        (beside / probe.name).rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            beside.rmdir()
        with contextlib.suppress(OSError):
            probe.rmdir()
        return inside
    return beside


def make_partition(root: Path, live: Path, new: Path, ops: Ops) -> None:
    """Make the directory that will replace `live`, with the same owner, group and mode.

    It is created inside the archive, so it also inherits what directories there inherit: the group, or an access list.
    """
    inside = root / COMPACTING / new.name
    inside.mkdir(parents=True)
    before, now = live.stat(), inside.stat()
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.chown(inside, before.st_uid, before.st_gid)
        except OSError:  # only root may change the owner; one of our own groups may still be set
            with contextlib.suppress(OSError):
                os.chown(inside, -1, before.st_gid)
    if inside.stat().st_mode != before.st_mode:
        with contextlib.suppress(OSError):
            os.chmod(inside, stat.S_IMODE(before.st_mode))
    ops.move(inside, new)


def remove_aside(root: Path, ops: Ops) -> None:
    """Remove what a compaction left; the only copy of a file is never there."""
    for place in (root / COMPACTING, _beside(root)):
        if place.is_dir():
            ops.remove(place)


def _beside(root: Path) -> Path:
    real = root.resolve()
    return real.with_name(f".{real.name}.compacting")


@contextlib.contextmanager
def held(lock: Path, busy: str | None = None) -> Iterator[None]:
    """Hold a lock file, at most until the process ends. With `busy`, do not wait: raise BadArchive with that text."""
    with open(open_file(lock, os.O_RDWR | os.O_CREAT, None), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise BadArchive(str(busy)) from None
        yield
