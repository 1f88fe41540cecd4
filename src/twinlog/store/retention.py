"""When old segments are deleted: by age at the hours the operator chose, by disk space at any time.

    disk use (percent)   75              85                     90
    ---------------------|---------------|----------------------|-------
    expired, at the      expired, at     oldest, expired or     as before, and sends are refused
    hours of deleteWhen  any hour        not                    until space is back

`decide` is pure; `Retention` asks the disk and the clock and carries the decision out. The last segment
always stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlog.settings.durations import parse_hours
from twinlog.settings.store import StoreSettings
from twinlog.store.log.commit_log import CommitLog, disk_used_ratio
from twinlog.store.run_flags import RunFlags
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Decision:
    """How many of the oldest segments to delete, why, and whether the disk is too full for sends."""

    count: int
    reason: str
    disk_full: bool


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a pass deleted."""

    segments: int = 0
    bytes: int = 0
    reason: str = ""


def decide(
    settings: StoreSettings,
    *,
    modified_ms: Sequence[int],
    disk_percent: float,
    hour: int,
    now_ms: int,
    manual: bool = False,
) -> Decision:
    """`modified_ms` are the modification times of all segments, oldest first, without the last one."""
    full_at = min(max(settings.disk_percent_full, 35), 90)
    forced_at = min(max(settings.disk_percent_forcible, 30), 85)
    disk_full = disk_percent > full_at
    forced = settings.forcible_cleaning and disk_percent > forced_at
    if manual:
        reason = "requested by the operator"
    elif disk_percent > settings.disk_percent_max:
        reason = f"disk {disk_percent:.0f} % used"
    elif hour in parse_hours(settings.delete_hours):
        reason = f"hour {hour} of deleteWhen"
    else:
        return Decision(0, "", disk_full)
    expired_before = now_ms - settings.reserved_hours * _HOUR_MS
    count = 0
    for modified in modified_ms[: settings.delete_files_max]:
        if not forced and modified > expired_before:
            break
        count += 1
    return Decision(count, reason + (", before they expired" if forced else ""), disk_full)


class Retention:
    """Deletes segments of one log by its settings."""

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: CommitLog,
        flags: RunFlags,
        *,
        queue_directory: Path,
        disk_ratio: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        self._log = commit_log
        self._flags = flags
        self._queue_directory = queue_directory
        self._disk_ratio = disk_ratio or self._used_ratio

    def clean(self, now_ms: int, *, manual: bool = False) -> Cleaned:
        """One pass; at most deleteFileBatchMax segments."""
        decision = decide(
            self.settings,
            modified_ms=[int(os.stat(one.path).st_mtime * 1000) for one in self._log.segments[:-1]],
            disk_percent=self._disk_ratio() * 100,
            hour=time.localtime(now_ms / 1000).tm_hour,
            now_ms=now_ms,
            manual=manual,
        )
        self._set_disk_flag(decision.disk_full)
        deleted = 0
        for _ in range(decision.count):
            segment = self._log.drop_oldest()
            if segment is None:
                break
            deleted += 1
            log.info("segment deleted", path=str(segment.path), reason=decision.reason)
        return Cleaned(deleted, deleted * self._log.segment_size, decision.reason if deleted else "")

    def _set_disk_flag(self, full: bool) -> None:
        if full and not self._flags.value & RunFlags.DISK_FULL:
            log.error("disk above diskSpaceWarningLevelRatio: sends are refused until space is back")
        if full:
            self._flags.set(RunFlags.DISK_FULL)
        else:
            self._flags.clear(RunFlags.DISK_FULL)

    def _used_ratio(self) -> float:
        """Of several log directories the emptiest counts, since new segments can still go there."""
        logs = min((disk_used_ratio(path) for path in self._log.directories), default=0.0)
        return max(logs, disk_used_ratio(self._queue_directory))
