"""The store as the broker sees it, and how it opens, changes its role, is cut and closes.

`MessageStore` is one object in four files, each a class that adds its subject to the one before:

    ReadableStore    read by queue, time, place and key
    WritableStore    append, take a master's bytes, dispatch
    DurableStore     flush, save the checkpoint, delete what has expired
    MessageStore     open and recover, cut, change role, close

All of it runs on one thread (the event loop's), except `flush`, `flush_queues` and `save_checkpoint`, which run on a
worker thread. `abort` is removed only by a close that leaves every record in its queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twinlog.settings.store import StoreSettings
from twinlog.store.cut_backup import back_up_range, back_up_segments
from twinlog.store.dispatch import CutDispatcher
from twinlog.store.durable_store import DurableStore
from twinlog.store.errors import DamagedTransfer, NotClosed, StoreUnusable, system_errors_as
from twinlog.store.file_ops import FileOps
from twinlog.store.lock import StoreLock, clear_abort_marker, has_abort_marker, set_abort_marker
from twinlog.store.readable_store import read_limits
from twinlog.store.recovery.directory_check import check_directories
from twinlog.store.recovery.quarantine import Damage
from twinlog.store.recovery.recovery import Recovery, RecoveryReport
from twinlog.store.writable_store import request_end


class MessageStore(DurableStore):
    """One open store directory. Make it with `MessageStore.open`, and close it."""

    keeps_delay_offsets = True  # a foreign store in its place may not; request 45 then gets a remark of its own

    def __init__(
        self,
        settings: StoreSettings,
        *,
        on_damage: Callable[[Damage], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,  # whether recovery should end early
        ops: FileOps | None = None,
        **options: Any,
    ) -> None:
        super().__init__(settings, ops=ops or FileOps(settings.modes), **options)
        self.report = RecoveryReport(clean=True)
        self._on_damage = on_damage
        self._stopped = stopped
        self._lock: StoreLock | None = None

    # ---- opening

    @classmethod
    def open(cls, settings: StoreSettings, **options: object) -> Self:
        """Lock, load and recover the store in `settings.root_dir`; options as in the constructor."""
        return cls.open_wrapped(settings, lambda store: store, **options)

    @classmethod
    def open_wrapped(cls, settings: StoreSettings, wrap: Callable[[Self], Any], **options: object) -> Any:
        """The same, and `wrap` may put a wrapper around the store before it is loaded: see `plugins`."""
        root = Path(settings.root_dir)
        with system_errors_as(StoreUnusable, root), contextlib.ExitStack() as undo:
            lock = StoreLock.acquire(root, FileOps(settings.modes))
            undo.callback(lock.release)
            check_directories(root, settings.commit_log_dirs)
            store = cls(settings, **options)  # type: ignore[arg-type]
            undo.callback(store.commit_log.close)
            outer = wrap(store)
            outer.load()
            store._lock = lock
            undo.pop_all()
        return outer

    def load(self) -> None:
        """Load log, queues and index, and recover them; `open` calls this once, through the plug-ins."""
        self.commit_log.load()
        clean = not has_abort_marker(self.root)
        self.queues.load(clean=clean)
        if self.index is not None:
            self.index.load(clean=clean, trusted_timestamp=self.checkpoint.index_timestamp)
        self.report = Recovery(
            self.root,
            self.commit_log,
            self.queues,
            [one for one in self.dispatchers if one not in self._followers],
            followers=self._followers,
            clean=clean,
            checkpoint=self.checkpoint,
            delay_levels=self.delay_levels,
            index=self.index,
            index_safe=self.settings.index_safe,
            check_crc=self.settings.crc_checked_on_recover,
            check_record_crc=self.settings.property_crc_forced,
            on_damage=self._on_damage,
            stopped=self._stopped,
            ops=self._ops,
        ).run()
        self.commit_log.check_end()
        set_abort_marker(self.root, self._ops)
        self.checkpoint.confirm_offset = max(0, self.report.last_record)
        self.last_record_offset = self.report.last_record if self.report.last_record >= 0 else None
        self.dispatched_end = self.opened_end = self.log_end
        self._dispatched_timestamp = self._appender.last_timestamp = self.report.last_timestamp
        self._tail.start_at(self.log_end)
        self._cut_followers(self.log_end)  # one may have flushed records that a crash removed from the log

    def update_settings(self, settings: StoreSettings) -> None:
        """Apply what may change while the store is open: limits, flush mode, retention."""
        self.settings = self._retention.settings = settings
        self.limits = read_limits(settings)
        self._appender.limit_messages(settings.message_bytes_max)
        self.commit_log.disk_ratio_max = settings.disk_percent_forcible / 100

    # ---- roles and cuts

    def change_role(self, role: str) -> None:
        """Become master or replica. A replica that takes over first drops a record of which it has only a part."""
        if role == self.role:
            return
        if self.role == "SLAVE":
            self.drop_partial_record()
        else:
            self._dispatch_rest()
            self._tail.start_at(self.commit_log.log_end)
        self._appender.forget()
        self._appender.last_timestamp = max(self._appender.last_timestamp, self._dispatched_timestamp)
        self.role = role

    def drop_partial_record(self) -> None:
        """Cut off a record of which only a part has arrived: a replica then asks for all of it."""
        with contextlib.suppress(DamagedTransfer):  # it is cut off with everything after it
            self.dispatch_pending()
        if self.role == "SLAVE" and self._tail.end < self.log_end:
            self.truncate(self._tail.end)

    def set_log_aside(self, now_ms: int) -> Path:
        """Back up the whole log and go on with an empty store, for a replica that starts over; returns the backup."""
        kept = back_up_segments(self.root, self.commit_log, now_ms, self._ops)
        self.commit_log.clear()
        self.queues.delete_all()
        if self.index is not None:
            self.index.delete_all()
        self._appender.take_runs()
        self._appender.forget()
        self.dispatched_end, self.last_record_offset = 0, None
        self._tail.start_at(0)
        self._cut_followers(0)
        return kept

    def cut_tail(self, log_end: int, now_ms: int) -> Path:
        """Back up the bytes from `log_end` on in a file, then cut them off; returns the file."""
        kept = self.set_tail_aside(log_end, now_ms)
        self.truncate(log_end, durable=True)
        return kept

    def set_tail_aside(self, log_end: int, now_ms: int) -> Path:
        """Back up the bytes from `log_end` on in a file, durably; returns it. An unfinished one is written again."""
        return back_up_range(self.root, self.commit_log, log_end, self.log_end, now_ms, self._ops)

    def truncate(self, log_end: int, *, durable: bool = False) -> None:
        """Cut the log and everything built from it at `log_end`, the start of a record or the log's end."""
        if log_end < self.commit_log.log_end:
            self._appender.pending = [one for one in self._appender.all_pending() if request_end(one) <= log_end]
            self.commit_log.truncate(log_end, durable=durable)
            self.queues.truncate_after(log_end)
            if self.index is not None:
                self.index.truncate_after(log_end)
            if self.last_record_offset is not None and self.last_record_offset >= log_end:
                self.last_record_offset = None
            self._cut_followers(log_end)
        self.dispatched_end = min(self.dispatched_end, log_end)
        self._tail.start_at(self.dispatched_end)
        self._appender.forget()

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; its records stay in the log until that part of it expires."""
        self.dispatch_pending()
        self.queues.delete_topic(topic)
        self._appender.forget(topic)

    def _cut_followers(self, log_end: int) -> None:
        for one in self._followers:
            if isinstance(one, CutDispatcher):
                try:
                    one.truncate_after(log_end)
                except OSError as error:  # it has the new end in memory; the next flush tries again
                    self._queues_failed(error)

    # ---- closing

    def close(self) -> None:
        """Make everything durable; remove `abort` if every record is in its queue."""
        if self._closed:
            return
        self._closed = True
        try:
            with system_errors_as(NotClosed, self.root):
                self._close_files()
        finally:
            self.commit_log.close()
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_files(self) -> None:
        if self.role != "SLAVE":
            self._dispatch_rest()
        elif self._failed_at is None:
            self.drop_partial_record()
        self.flush()
        self.flush_queues()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.save_checkpoint()
        if self.flags.writable and self.dispatched_end == self.log_end:
            clear_abort_marker(self.root, self._ops)
