"""`twinlog failover reinit`: a stopped replica with a broken store starts over, as a copy of the master.

Nothing is deleted: the store's files move into set-aside/ of the store. Its new store is another member, so no in-sync
set names it until it has caught up.
"""

from __future__ import annotations

import os
from pathlib import Path

from twinlog.base.clock import wall_clock_ms
from twinlog.base.safe_files import make_directory
from twinlog.failover.records import Keys
from twinlog.observe.replicas.failover_groups import FailoverRefused
from twinlog.settings.store import StoreSettings
from twinlog.store.cut_backup import BACKUP_DIRECTORY
from twinlog.store.lock import StoreLock

_CONFIG = "config"
_KEPT = frozenset({BACKUP_DIRECTORY, "lock"})


def stored_member(root: Path) -> str | None:
    """The id of the store in `root`; None when it has none."""
    try:
        return (root / _CONFIG / "twinlogInstance").read_text().strip() or None
    except OSError:
        return None


def check_reinit(keys: Keys, member: str | None, *, force: bool) -> None:
    """FailoverRefused when the store may have the only copy of something."""
    leader = keys.leader
    if leader is None:
        raise FailoverRefused("the group has no master to copy from: this store may be the newest; nothing was changed")
    if member is not None and leader.member == member:
        raise FailoverRefused("this store is the master's; `twinlog failover switchover` first")
    in_sync = keys.in_sync.members if keys.in_sync is not None else ()
    if member in in_sync and not force:
        raise FailoverRefused(
            f"this store is in sync, one of {len(in_sync)} that hold everything acknowledged. If it is broken all the "
            "same, repeat with --force"
        )


def set_store_aside(settings: StoreSettings) -> Path:
    """Move everything in the store's directories aside; returns where it is. StoreLocked while a broker runs."""
    root, stamp = Path(settings.root_dir), wall_clock_ms()
    lock = StoreLock.acquire(root)
    try:
        target = root / BACKUP_DIRECTORY / f"{stamp}-store"
        make_directory(target)
        # The id of the store goes first: an emptied store must not be the member that an in-sync set names.
        for path in sorted(root.iterdir(), key=lambda path: (path.name != _CONFIG, path.name)):
            if path.name not in _KEPT:
                os.rename(path, target / path.name)
        for number, given in enumerate(settings.commit_log_dirs):
            path = Path(given)
            if path.exists() and root not in path.parents:  # may be another file system: it stays there
                os.rename(path, path.with_name(f"{path.name}-set-aside-{stamp}-{number}"))
    finally:
        lock.release()
    return target
