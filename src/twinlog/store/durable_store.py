"""Keeping a store: what was written becomes durable, and what has expired goes.

Order of durability: the log, then queues and index, then the checkpoint. The checkpoint gets the times that were true
before the flush began, so it never claims what is not on disk. `flush`, `flush_queues`, `save_checkpoint` and
`clean_queues` block on the disk and run on a worker thread; the rest runs on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinlog.settings.store import StoreSettings
from twinlog.store.errors import FlushFailed
from twinlog.store.recovery.checkpoint import load_checkpoint, save_checkpoint
from twinlog.store.retention import Cleaned, Retention
from twinlog.store.run_flags import RunFlags
from twinlog.store.writable_store import WritableStore
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


class DurableStore(WritableStore):
    """A store that is flushed and cleaned; other options as for WritableStore.

    `disk_ratio` is how full the disk is, 0 to 1; by default the disks of its directories are asked.
    """

    def __init__(
        self, settings: StoreSettings, *, disk_ratio: Callable[[], float] | None = None, **options: Any
    ) -> None:
        super().__init__(settings, **options)
        self.checkpoint = load_checkpoint(self.root / "checkpoint")
        self._retention = Retention(
            settings, self.commit_log, self.flags, queue_directory=self.root, disk_ratio=disk_ratio
        )

    def flush(self) -> int:
        """Make the log durable; returns the flushed end. For a worker thread."""
        timestamp = self.last_timestamp
        try:
            flushed = self.commit_log.flush()
        except FlushFailed as error:
            self.unwritable_reason = str(error)
            self.flags.set(RunFlags.NOT_WRITABLE)
            raise
        self.checkpoint.physic_timestamp = max(self.checkpoint.physic_timestamp, timestamp)
        return flushed

    def flush_queues(self, *, thorough: bool = True) -> bool:
        """Write and flush queues, index and plug-ins; whether all of them. For a worker thread.

        Without `thorough`, queues may be left out: see `QueueTable.is_write_cheap`. The checkpoint then stays where it
        is, and after a crash, recovery reads their records again.
        """
        complete = thorough or self.queues.is_write_cheap
        try:
            for dispatcher in self.dispatchers:
                if complete or dispatcher is not self.queues:
                    dispatcher.flush()
        except OSError as error:
            self._queues_failed(error)
            raise
        if self.queues_failed:
            log.info("queues can be written again; sends are accepted")
            self.flags.clear(RunFlags.LOGICS_QUEUE_ERROR)
        self.checkpoint.logics_timestamp = max(self.checkpoint.logics_timestamp, self.queues.flushed_timestamp)
        if self.index is not None:
            self.checkpoint.index_timestamp = max(self.checkpoint.index_timestamp, self.index.full_timestamp)
        return complete

    def save_checkpoint(self) -> None:
        """Save how far the flushes have come. For a worker thread."""
        save_checkpoint(self.root / "checkpoint", self.checkpoint, self._ops)

    def drop_expired(self, now_ms: int, *, manual: bool = False) -> Cleaned:
        """Delete expired segments by the retention settings; if there were any, `clean_queues` has work."""
        return self._retention.clean(now_ms, manual=manual)

    def clean_queues(self) -> int:
        """Delete the queue and index files that only deleted segments needed; how many of queues. For a thread."""
        log_start = self.log_start
        deleted = self.queues.delete_expired(log_start)
        if self.index is not None:
            self.index.delete_expired(log_start)
        return deleted

    def clean_expired(self, now_ms: int, *, manual: bool = False) -> Cleaned:
        """Both in one go, for a caller that may wait."""
        cleaned = self.drop_expired(now_ms, manual=manual)
        if cleaned.segments:
            self.clean_queues()
        return cleaned
