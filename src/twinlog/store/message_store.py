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

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from twinlog.settings.store import StoreSettings
from twinlog.store.append import Appended, Appender, Draft, PutStatus
from twinlog.store.checkpoint import load_checkpoint, save_checkpoint
from twinlog.store.commit_log import CommitLog
from twinlog.store.delay import DelayLevels
from twinlog.store.dispatch import Dispatcher, DispatchRequest
from twinlog.store.errors import AllocationFailed, FlushFailed
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.index import Index
from twinlog.store.quarantine import Damage
from twinlog.store.queue_table import QueueTable
from twinlog.store.read import Accept, AcceptRecord, ReadLimits, ReadResult, read_queue, search_offset, store_time_at
from twinlog.store.recovery import Recovery, RecoveryReport
from twinlog.store.replica_tail import ReplicaTail
from twinlog.store.retention import Cleaned, Retention
from twinlog.store.run_flags import RunFlags
from twinlog.store.set_aside import keep_range, keep_segments
from twinlog.store.store_lock import StoreLock, clear_abort_marker, has_abort_marker, set_abort_marker
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message
from twinlog.wire.properties import UNIQ_KEY

log = logging.getLogger(__name__)
Arrival = Callable[[Sequence[DispatchRequest]], None]


class QueryResult(msgspec.Struct):
    """What a query by key found, and how far the index reaches."""

    buffers: list[memoryview] = []
    last_update_timestamp: int = 0
    last_update_offset: int = 0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class MessageStore:
    """One open store directory. Make it with `MessageStore.open`, and close it."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        role: str = "ASYNC_MASTER",
        store_host: tuple[str, int] = ("127.0.0.1", 10911),
        clock_ms: Callable[[], int] = now_ms,
        topic_kind: Callable[[str], str] = lambda topic: "SimpleCQ",
        dispatchers: Sequence[Dispatcher] = (),
        early_dispatchers: Sequence[Dispatcher] = (),
        on_damage: Callable[[Damage], None] | None = None,
        ops: FileOps = FILE_OPS,
    ) -> None:
        self.settings = settings
        self.root = Path(settings.root_dir)
        self.role = role
        self.flags = RunFlags()
        self.on_arrival: list[Arrival] = []
        self.report = RecoveryReport(clean=True)
        self.dispatched_end = 0
        self.last_record_offset: int | None = None  # of the newest record that was dispatched or recovered
        self._ops = ops
        self._on_damage = on_damage
        self._lock: StoreLock | None = None
        self._closed = False
        self.delay_levels = DelayLevels(settings.delay_levels)
        self.commit_log = CommitLog(
            [Path(part.strip()) for part in settings.commit_log_dir.split(",")],
            settings.segment_bytes,
            disk_ratio_max=settings.disk_percent_forcible / 100,
            ops=ops,
        )
        self.queues = QueueTable(
            self.root,
            queue_file_bytes=settings.queue_file_bytes,
            batch_file_bytes=settings.batch_queue_file_bytes,
            ext_file_bytes=settings.queue_ext_file_bytes,
            ext_enabled=settings.queue_ext_enabled,
            topic_kind=topic_kind,
            ops=ops,
        )
        self.index: Index | None = None
        if settings.index_enabled:
            self.index = Index(
                self.root,
                slot_count=settings.index_slots,
                entry_max=settings.index_entries,
                clock_ms=clock_ms,
                ops=ops,
            )
        index: list[Dispatcher] = [self.index] if self.index is not None else []
        self.dispatchers: list[Dispatcher] = [*early_dispatchers, self.queues, *index, *dispatchers]
        self.checkpoint = load_checkpoint(self.root / "checkpoint")
        self._limits = ReadLimits.of_machine(
            settings.memory_percent,
            bytes_in_memory_max=settings.transfer_bytes_in_memory,
            count_in_memory_max=settings.transfer_count_in_memory,
            bytes_on_disk_max=settings.transfer_bytes_on_disk,
            count_on_disk_max=settings.transfer_count_on_disk,
            units_examined_max=settings.filter_scan_bytes_max // 20,
        )
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

    @classmethod
    def open(cls, settings: StoreSettings, **options: object) -> Self:
        """Lock, load and recover the store in `settings.root_dir`; options as in the constructor."""
        lock = StoreLock.acquire(Path(settings.root_dir))
        try:
            store = cls(settings, **options)  # type: ignore[arg-type]
            store._lock = lock
            store._recover()
        except BaseException:
            lock.release()
            raise
        return store

    # ---- writing

    def append(self, draft: Draft) -> Appended:
        """Store one message; its status says whether, its place says where."""
        if self._closed or self.role == "SLAVE" or (self.flags.value and not self.flags.writable):
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return self._appender.append(draft)
        except AllocationFailed as error:
            log.error("append refused: %s", error)
            return Appended(PutStatus.CREATE_SEGMENT_FAILED)

    def append_batch(self, drafts: Sequence[Draft]) -> Appended:
        """Store several messages next to each other, all or none."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return self._appender.append_batch(drafts)
        except AllocationFailed as error:
            log.error("append refused: %s", error)
            return Appended(PutStatus.CREATE_SEGMENT_FAILED)

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Take a master's bytes, which must begin at the log's end; returns the new end.

        They may begin and end inside a record. `dispatch_pending` follows with the whole records.
        """
        if not self.commit_log.segments and physical_offset != self.commit_log.log_end:
            self.commit_log.begin_at(physical_offset)
            self._tail.start_at(physical_offset)
            self.dispatched_end = physical_offset
        self.commit_log.write_raw(physical_offset, data)
        return self.commit_log.log_end

    def dispatch_pending(self) -> int:
        """Tell queues, index and listeners about new records; returns how many. Cheap when there are none."""
        if self.role == "SLAVE":
            return sum(self._dispatch(batch) for batch in self._tail.requests())
        batch = self._appender.pending
        if not batch:
            return 0
        if self.settings.flush_disk_type == "SYNC_FLUSH":
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
        self.dispatch_pending()
        if self.role == "SLAVE":
            self.truncate(self._tail.end)
        else:
            self._dispatch_rest()
            self._tail.start_at(self.commit_log.log_end)
        self._appender.forget()
        self._appender.last_timestamp = max(self._appender.last_timestamp, self._dispatched_timestamp)
        self.role = role

    def drop_partial_record(self) -> None:
        """Cut a record of which only a part has arrived, so that a replica asks for it whole."""
        self.dispatch_pending()
        if self.role == "SLAVE" and self._tail.end < self.log_end:
            self.truncate(self._tail.end)

    def set_log_aside(self, now_ms: int) -> Path:
        """Keep the whole log under another name and begin with an empty store, for a replica that starts over."""
        kept = keep_segments(self.root, self.commit_log, now_ms, self._ops)
        self.commit_log.clear()
        self.queues.delete_all()
        if self.index is not None:
            self.index.delete_all()
        self._appender.pending = []
        self._appender.forget()
        self.dispatched_end, self.last_record_offset = 0, None
        self._tail.start_at(0)
        return kept

    def cut_tail(self, log_end: int, now_ms: int) -> Path:
        """Keep the bytes from `log_end` on in a file, then cut them off; returns the file."""
        kept = keep_range(self.root, self.commit_log, log_end, self.log_end, now_ms, self._ops)
        self.truncate(log_end)
        return kept

    def truncate(self, log_end: int) -> None:
        """Cut the log and everything built from it at `log_end`, the start of a record or the log's end."""
        if log_end < self.commit_log.log_end:
            self._appender.pending = [one for one in self._appender.pending if _request_end(one) <= log_end]
            self.commit_log.truncate(log_end)
            self.queues.truncate_after(log_end)
            if self.index is not None:
                self.index.truncate_after(log_end)
            if self.last_record_offset is not None and self.last_record_offset >= log_end:
                self.last_record_offset = None
            if self.index is not None:
                self.index.truncate_after(log_end)
        self.dispatched_end = min(self.dispatched_end, log_end)
        self._tail.start_at(self.dispatched_end)
        self._appender.forget()

    # ---- reading

    @property
    def log_start(self) -> int:
        return self.commit_log.log_start

    @property
    def log_end(self) -> int:
        return self.commit_log.log_end

    @property
    def flushed_end(self) -> int:
        return self.commit_log.flushed_end

    @property
    def whole_end(self) -> int:
        """The end of the whole, checked records: what a replica may vouch for."""
        return self._tail.end if self.role == "SLAVE" else self.commit_log.log_end

    @property
    def last_timestamp(self) -> int:
        """Store timestamp of the newest record."""
        return max(self._appender.last_timestamp, self._dispatched_timestamp)

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int = 32,
        bytes_max: int = 1 << 62,
        accept: Accept | None = None,
        accept_record: AcceptRecord | None = None,
    ) -> ReadResult:
        """Messages of a queue from `queue_offset` on, as windows on the mapped log."""
        return read_queue(
            self.queues.get(topic, queue_id),
            self.commit_log,
            queue_offset,
            count_max=count_max,
            limits=self._limits,
            bytes_max=bytes_max,
            accept=accept,
            accept_record=accept_record,
            correct_offset=self.role != "SLAVE" or self.settings.offset_checked_on_replica,
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.max_offset(topic, queue_id)

    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        return search_offset(self.queues.get(topic, queue_id), self.commit_log, timestamp_ms, upper=upper)

    def store_time_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When the message was stored; -1 when it is not there."""
        return store_time_at(self.queues.get(topic, queue_id), self.commit_log, queue_offset)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(physical offset, record size, tags code) of one message."""
        queue = self.queues.get(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return None if unit is None else (unit.physical_offset, unit.size, unit.tags_code or 0)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The bytes of the record that begins there."""
        return self.commit_log.record(physical_offset)

    def message_at(self, physical_offset: int, size: int | None = None) -> Message | None:
        """The message whose record begins there; None when there is none."""
        record = (
            self.commit_log.record(physical_offset) if size is None else self.commit_log.slice(physical_offset, size)
        )
        if record is None:
            return None
        try:
            message = decode_message(record)
        except RecordError:
            return None
        return message if message.physical_offset == physical_offset else None

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Records of a topic with this unique key or user key, newest first, as windows on the mapped log."""
        if self.index is None:
            return QueryResult()
        found = self.index.query(topic, key, count_max, begin_ms, end_ms)
        buffers = []
        for physical_offset in found.physical_offsets:
            message, record = self.message_at(physical_offset), self.record_at(physical_offset)
            # The index knows hashes only, and an entry may outlive its record.
            if message is None or record is None or message.topic != topic:
                continue
            if key == message.properties.get(UNIQ_KEY) or key in message.keys:
                buffers.append(record)
        return QueryResult(buffers, found.last_update_timestamp, found.last_update_offset)

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
            self.flags.set(RunFlags.LOGICS_QUEUE_ERROR)
            log.error("queues cannot be written: %s; sends are refused until they can", error)
            raise
        self.flags.clear(RunFlags.LOGICS_QUEUE_ERROR)
        self.checkpoint.logics_timestamp = max(self.checkpoint.logics_timestamp, self.queues.flushed_timestamp)
        if self.index is not None:
            self.checkpoint.index_timestamp = max(self.checkpoint.index_timestamp, self.index.full_timestamp)

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
        if self.role == "SLAVE":
            self.dispatch_pending()
            self.truncate(self._tail.end)
        else:
            self._dispatch_rest()
        self.flush()
        self.flush_queues()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.save_checkpoint()
        if self.flags.writable and self.dispatched_end == self.log_end:
            clear_abort_marker(self.root, self._ops)

    def _dispatch_rest(self) -> None:
        batch, self._appender.pending = self._appender.pending, []
        if batch:
            self._dispatch(batch)

    def _dispatch(self, batch: Sequence[DispatchRequest]) -> int:
        for dispatcher in self.dispatchers:
            try:
                dispatcher.dispatch(batch)
            except OSError as error:  # the units stay in memory, and the next flush tries again
                self.flags.set(RunFlags.LOGICS_QUEUE_ERROR)
                log.error("queues cannot be written: %s; sends are refused until they can", error)
        last = batch[-1]
        self.last_record_offset = last.physical_offset
        self.dispatched_end = last.physical_offset + last.size
        self._dispatched_timestamp = last.store_timestamp
        for tell in self.on_arrival:
            tell(batch)
        return len(batch)

    def _recover(self) -> None:
        self.commit_log.load()
        clean = not has_abort_marker(self.root)
        self.queues.load(clean=clean)
        if self.index is not None:
            self.index.load(clean=clean, trusted_timestamp=self.checkpoint.index_timestamp)
        self.report = Recovery(
            self.root,
            self.commit_log,
            self.queues,
            self.dispatchers,
            clean=clean,
            checkpoint=self.checkpoint,
            delay_levels=self.delay_levels,
            index=self.index,
            index_safe=self.settings.index_safe,
            check_crc=self.settings.crc_checked_on_recover,
            check_record_crc=self.settings.property_crc_forced,
            on_damage=self._on_damage,
            ops=self._ops,
        ).run()
        set_abort_marker(self.root, self._ops)
        self.checkpoint.confirm_offset = max(0, self.report.last_record)
        self.last_record_offset = self.report.last_record if self.report.last_record >= 0 else None
        self.dispatched_end = self.log_end
        self._dispatched_timestamp = self._appender.last_timestamp = self.report.last_timestamp
        self._tail.start_at(self.log_end)


def _request_end(request: DispatchRequest) -> int:
    return request.physical_offset + request.size
