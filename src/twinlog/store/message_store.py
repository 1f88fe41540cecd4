"""The store as the broker sees it: append, dispatch, read, flush, clean, close.

    append / append_batch        into the mapped log, on the one writer thread
    append_raw                   a master's bytes, on a replica
        |  pending requests
    dispatch_pending             once per batch of sends: queues, index, bitmap, plug-ins, then `on_arrival`
        |
    read, query, ...             see what was dispatched

Everything here runs on one thread (the event loop's), except `flush`, `flush_queues` and `save_checkpoint`,
which block on the disk and are made for a worker thread.

Order of durability: log, then queues and index, then the checkpoint, which takes the times that were true
before the flush began. `abort` disappears only at a close that leaves every record in its queue.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twinlog.base.clock import wall_clock_ms
from twinlog.settings.store import StoreSettings
from twinlog.store.cut_backup import back_up_range, back_up_segments
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import CutDispatcher, Dispatcher, DispatchRequest
from twinlog.store.errors import (
    AllocationFailed,
    DamagedTransfer,
    DispatchFailed,
    FlushFailed,
    NotClosed,
    StoreUnusable,
    system_errors_as,
)
from twinlog.store.file_ops import FileOps
from twinlog.store.lock import StoreLock, clear_abort_marker, has_abort_marker, set_abort_marker
from twinlog.store.log.append import Appended, Appender, Draft, PutStatus
from twinlog.store.log.append_batch import append_elements
from twinlog.store.log.append_run import Row, append_run
from twinlog.store.log.commit_log import RawRoom
from twinlog.store.readable_store import ReadableStore, read_limits
from twinlog.store.recovery.checkpoint import load_checkpoint, save_checkpoint
from twinlog.store.recovery.directory_check import check_directories
from twinlog.store.recovery.quarantine import Damage
from twinlog.store.recovery.recovery import Recovery, RecoveryReport
from twinlog.store.retention import Cleaned, Retention
from twinlog.store.run_flags import RunFlags
from twinlog.store.scan.replica_tail import ReplicaTail
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
Arrival = Callable[[Sequence[DispatchRequest]], None]


class MessageStore(ReadableStore):
    """One open store directory. Make it with `MessageStore.open`, and close it."""

    keeps_delay_offsets = True  # a foreign store in its place may not; request 45 then gets a remark of its own

    def __init__(
        self,
        settings: StoreSettings,
        *,
        role: str = "ASYNC_MASTER",
        store_host: tuple[str, int] = ("127.0.0.1", 10911),
        clock_ms: Callable[[], int] = wall_clock_ms,
        topic_kind: Callable[[str], str] = lambda topic: "SimpleCQ",
        dispatchers: Sequence[Dispatcher] = (),
        early_dispatchers: Sequence[Dispatcher] = (),
        on_damage: Callable[[Damage], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,  # whether recovery shall end early
        ops: FileOps | None = None,
    ) -> None:
        ops = ops or FileOps(settings.modes)
        super().__init__(settings, topic_kind=topic_kind, clock_ms=clock_ms, ops=ops)
        self.role = role
        self.flags = RunFlags()
        self.on_dispatch: list[Arrival] = []  # told of every record, once
        self.on_arrival: list[Arrival] = []  # told of records that can be read; plug-ins may add some
        self.report = RecoveryReport(clean=True)
        self.dispatched_end = 0
        self.last_record_offset: int | None = None  # of the newest record that was dispatched or recovered
        self.delay_levels = DelayLevels(settings.delay_levels)
        self._ops = ops
        self._on_damage = on_damage
        self._stopped = stopped
        self._lock: StoreLock | None = None
        self._closed = False
        index: list[Dispatcher] = [self.index] if self.index is not None else []
        self.dispatchers: list[Dispatcher] = [*early_dispatchers, self.queues, *index, *dispatchers]
        self._followers = list(dispatchers)
        self.checkpoint = load_checkpoint(self.root / "checkpoint")
        self._appender = Appender(
            self.commit_log,
            store_host=store_host,
            clock_ms=clock_ms,
            next_offset=self.queues.max_offset,
            delay_levels=self.delay_levels,
            message_size_max=settings.message_bytes_max,
            append_crc=settings.property_crc_enabled,
            long_topics=settings.long_topics_enabled,
        )
        self._tail = ReplicaTail(self.commit_log, self.delay_levels)
        self._retention = Retention(settings, self.commit_log, self.flags, queue_directory=self.root)
        self._dispatched_timestamp = 0
        self._refused_at = -1
        self._failed_at: int | None = None  # from here on a replica's records wait for recovery, see DispatchFailed

    @classmethod
    def open(cls, settings: StoreSettings, **options: object) -> Self:
        """Lock, load and recover the store in `settings.root_dir`; options as in the constructor."""
        return cls.open_wrapped(settings, lambda store: store, **options)

    @classmethod
    def open_wrapped(cls, settings: StoreSettings, wrap: Callable[[Self], Any], **options: object) -> Any:
        """The same with what `wrap` puts around the store, before it is loaded: see `plugins`."""
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

    def update_settings(self, settings: StoreSettings) -> None:
        """Take over what may change while the store is open: limits, flush mode, retention."""
        self.settings = self._retention.settings = settings
        self.limits = read_limits(settings)
        self._appender.limit_messages(settings.message_bytes_max)
        self.commit_log.disk_ratio_max = settings.disk_percent_forcible / 100

    def add_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Have `dispatcher` follow the log, behind queues and index. Added before `load`, it misses no record.

        After a crash it gets again what was not flushed for sure, and must ignore what it has.
        """
        self.dispatchers.append(dispatcher)
        self._followers.append(dispatcher)

    # ---- writing

    def append(self, draft: Draft) -> Appended:
        """Store one message; its status says whether, its place says where."""
        if self._closed or self.role == "SLAVE" or (self.flags.value and not self.flags.writable):
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return self._appender.append(draft)
        except AllocationFailed as error:
            return self._without_space(error)

    def append_run(self, born_host: tuple[str, int], rows: Sequence[Row]) -> list[tuple[int, int, int]]:
        """Store ordinary messages of one sender; places of those at the front that were, see `append_run`."""
        if self._closed or self.role == "SLAVE" or (self.flags.value and not self.flags.writable):
            return []
        return append_run(self._appender, born_host, rows)

    def append_batch(self, drafts: Sequence[Draft]) -> Appended:
        """Store several messages next to each other, all or none."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return self._appender.append_batch(drafts)
        except AllocationFailed as error:
            return self._without_space(error)

    def append_elements(
        self,
        born_host: tuple[str, int],
        topic: str,
        queue_id: int,
        batch: bytes,
        born_timestamp: int,
        sys_flag: int,
        reconsume_times: int,
    ) -> Appended | None:
        """Store an ordinary batch send, all or none of it; None when `append_batch` must look at it."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return None
        try:
            return append_elements(
                self._appender, born_host, topic, queue_id, batch, born_timestamp, sys_flag, reconsume_times
            )
        except AllocationFailed as error:
            return self._without_space(error)

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Take a master's bytes, which must begin at the log's end; returns the new end.

        They may begin and end inside a record. `dispatch_pending` follows with the whole records.
        """
        if self.commit_log.log_end == 0 != physical_offset:
            self.commit_log.clear()  # a Java replica makes its first file before it knows where its log begins
            self.commit_log.begin_at(physical_offset)
            self._tail.start_at(physical_offset)
            self.dispatched_end = physical_offset
        self.commit_log.write_raw(physical_offset, data)
        return self.commit_log.log_end

    def raw_room(self, bytes_max: int) -> RawRoom:
        """Where a thread may write the next of a master's bytes while `dispatch_pending` works on those before.

        Nothing of it is visible before `raw_written`.
        """
        return self.commit_log.raw_room(bytes_max)

    def raw_written(self, log_end: int) -> None:
        """Take in what was written to the last `raw_room`, up to this offset."""
        self.commit_log.raw_written(log_end)

    def end_raw(self) -> None:
        """The thread wants no more room."""
        self.commit_log.end_raw()

    def dispatch_pending(self, on_checked: Callable[[], None] = lambda: None) -> int:
        """Tell queues, index and listeners about new records; returns how many. Cheap when there are none.

        On a replica `on_checked` is called whenever `whole_end` has moved on: a master need not wait for the queues.
        Its error comes out of here when the queues have those records.
        """
        if self.role == "SLAVE":
            if self._failed_at is not None:
                raise DispatchFailed(self._failed_at)
            count = 0
            for batch in self._tail.requests():
                try:
                    on_checked()
                finally:
                    count += self._dispatch(batch)
            return count
        batch = self._appender.pending
        if not batch:
            return 0
        if self.settings.flush_disk_type == "SYNC_FLUSH" and not self.settings.read_uncommitted:
            # A consumer must not see what a crash could still take back.
            durable = bisect_right(batch, self.commit_log.flushed_end, key=_request_end)
            self._appender.pending = batch[durable:]
            batch = batch[:durable]
            if not batch:
                return 0
        else:
            self._appender.pending = []
        return self._dispatch(batch)

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
        """Cut a record of which only a part has arrived, so that a replica asks for it whole."""
        with contextlib.suppress(DamagedTransfer):  # cut off together with what follows it
            self.dispatch_pending()
        if self.role == "SLAVE" and self._tail.end < self.log_end:
            self.truncate(self._tail.end)

    def set_log_aside(self, now_ms: int) -> Path:
        """Keep the whole log under another name and begin with an empty store, for a replica that starts over."""
        kept = back_up_segments(self.root, self.commit_log, now_ms, self._ops)
        self.commit_log.clear()
        self.queues.delete_all()
        if self.index is not None:
            self.index.delete_all()
        self._appender.pending = []
        self._appender.forget()
        self.dispatched_end, self.last_record_offset = 0, None
        self._tail.start_at(0)
        self._cut_followers(0)
        return kept

    def cut_tail(self, log_end: int, now_ms: int) -> Path:
        """Keep the bytes from `log_end` on in a file, then cut them off; returns the file."""
        kept = back_up_range(self.root, self.commit_log, log_end, self.log_end, now_ms, self._ops)
        self.truncate(log_end, durable=True)
        return kept

    def truncate(self, log_end: int, *, durable: bool = False) -> None:
        """Cut the log and everything built from it at `log_end`, the start of a record or the log's end."""
        if log_end < self.commit_log.log_end:
            self._appender.pending = [one for one in self._appender.pending if _request_end(one) <= log_end]
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

    @property
    def corrects_offsets(self) -> bool:
        return self.role != "SLAVE" or self.settings.offset_checked_on_replica

    @property
    def whole_end(self) -> int:
        """The end of the whole, checked records: what a replica may vouch for."""
        return self._tail.end if self.role == "SLAVE" else self.commit_log.log_end

    @property
    def last_timestamp(self) -> int:
        """Store timestamp of the newest record."""
        return max(self._appender.last_timestamp, self._dispatched_timestamp)

    # ---- durability

    def flush(self) -> int:
        """Make the log durable; returns the flushed end. For a worker thread."""
        timestamp = self.last_timestamp
        try:
            flushed = self.commit_log.flush()
        except FlushFailed:
            self.flags.set(RunFlags.NOT_WRITABLE)
            raise
        self.checkpoint.physic_timestamp = max(self.checkpoint.physic_timestamp, timestamp)
        return flushed

    def flush_queues(self) -> None:
        """Write and flush queues, index and plug-ins. For a worker thread."""
        try:
            for dispatcher in self.dispatchers:
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

    @property
    def queues_failed(self) -> bool:
        """Whether the last attempt to write queues failed; sends are refused meanwhile."""
        return bool(self.flags.value & RunFlags.LOGICS_QUEUE_ERROR)

    def save_checkpoint(self) -> None:
        """Write down what the flushes so far have reached. For a worker thread."""
        save_checkpoint(self.root / "checkpoint", self.checkpoint, self._ops)

    def clean_expired(self, now_ms: int, *, manual: bool = False) -> Cleaned:
        """Delete what the retention settings let go: segments, and then what only they needed."""
        cleaned = self._retention.clean(now_ms, manual=manual)
        if cleaned.segments:
            self.queues.delete_expired(self.log_start)
            if self.index is not None:
                self.index.delete_expired(self.log_start)
        return cleaned

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; its records stay in the log until that part of it expires."""
        self.dispatch_pending()
        self.queues.delete_topic(topic)
        self._appender.forget(topic)

    def close(self) -> None:
        """Make everything durable, and mark the store as cleanly closed if it is."""
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

    def _without_space(self, error: AllocationFailed) -> Appended:
        if self._refused_at != self.log_end:  # once, not for every message that is refused
            self._refused_at = self.log_end
            log.error("sends are refused", error=str(error))
        return Appended(PutStatus.CREATE_SEGMENT_FAILED)

    def _queues_failed(self, error: OSError) -> None:
        if not self.queues_failed:  # once, not for every attempt
            log.error("queues cannot be written; sends are refused until they can", error=str(error))
        self.flags.set(RunFlags.LOGICS_QUEUE_ERROR)

    def _dispatch_rest(self) -> None:
        batch, self._appender.pending = self._appender.pending, []
        if batch:
            self._dispatch(batch)

    def _dispatch(self, batch: Sequence[DispatchRequest]) -> int:
        for dispatcher in self.dispatchers:
            try:
                dispatcher.dispatch(batch)
            except OSError as error:  # the units stay in memory, and the next flush tries again
                self._queues_failed(error)
            except Exception as error:
                if self.role != "SLAVE":
                    raise
                self._failed_at = batch[0].physical_offset
                raise DispatchFailed(self._failed_at) from error
        last = batch[-1]
        self.last_record_offset = last.physical_offset
        self.dispatched_end = last.physical_offset + last.size
        self._dispatched_timestamp = last.store_timestamp
        for tell in (*self.on_dispatch, *self.on_arrival):
            tell(batch)
        return len(batch)

    def load(self) -> None:
        """Read what is on disk and recover; `open` calls it, once, through the plug-ins."""
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
        self.dispatched_end = self.log_end
        self._dispatched_timestamp = self._appender.last_timestamp = self.report.last_timestamp
        self._tail.start_at(self.log_end)
        self._cut_followers(self.log_end)  # one may have flushed records that a crash took from the log

    def _cut_followers(self, log_end: int) -> None:
        for one in self._followers:
            if isinstance(one, CutDispatcher):
                try:
                    one.truncate_after(log_end)
                except OSError as error:  # it has the new end in memory, and the next flush tries again
                    self._queues_failed(error)


def _request_end(request: DispatchRequest) -> int:
    return request.physical_offset + request.size
