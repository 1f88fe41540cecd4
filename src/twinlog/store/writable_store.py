"""Writing to an open store: messages and a master's bytes go into the log, and from there to the dispatchers.

    append / append_run / append_batch / append_elements / append_batches    messages, on a master
    append_raw / raw_room                                   a master's bytes, on a replica
        |  pending requests
    dispatch_pending     once per batch of sends: filter bitmap, queues, index, plug-ins, then the listeners

Reads see what was dispatched. Everything here runs on one thread, the event loop's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from twinlog.base.clock import wall_clock_ms
from twinlog.settings.store import StoreSettings
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import Dispatcher, DispatchRequest
from twinlog.store.errors import AllocationFailed, DispatchFailed
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.log.append import Appended, Draft, PutStatus, append, append_drafts
from twinlog.store.log.append_batch import append_elements
from twinlog.store.log.append_batches import Batch, StoredBatches, append_batches
from twinlog.store.log.append_run import Row, append_run
from twinlog.store.log.appender import Appender
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.log.commit_log import RawRoom
from twinlog.store.readable_store import ReadableStore
from twinlog.store.run_flags import RunFlags
from twinlog.store.scan.column_batch import ColumnBatch, QueueRun
from twinlog.store.scan.record_columns import columns_of_heads
from twinlog.store.scan.replica_tail import ReplicaTail
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
Listener = Callable[[Sequence[DispatchRequest]], None]


class WritableStore(ReadableStore):
    """A store that takes records: drafts from clients, or the bytes of its master."""

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
        ops: FileOps = FILE_OPS,
    ) -> None:
        super().__init__(settings, role=role, topic_kind=topic_kind, clock_ms=clock_ms, ops=ops)
        self.flags = RunFlags()
        self.unwritable_reason: str | None = None  # why no message is taken until a restart, for the answer to a send
        self.on_dispatch: list[Listener] = []  # called with every record, once
        self.on_arrival: list[Listener] = []  # called with records that can be read; plug-ins may add some
        self.dispatched_end = 0
        self.last_record_offset: int | None = None  # of the newest record that was dispatched or recovered
        self.delay_levels = DelayLevels(settings.delay_levels)
        index: list[Dispatcher] = [self.index] if self.index is not None else []
        self.dispatchers: list[Dispatcher] = [*early_dispatchers, self.queues, *index, *dispatchers]
        self._followers = list(dispatchers)  # those that plug-ins added
        self._appender = Appender(
            self.commit_log,
            store_host=store_host,
            clock_ms=clock_ms,
            next_offset=self.queues.max_offset,
            delay_levels=self.delay_levels,
            message_size_max=settings.message_bytes_max,
            append_crc=settings.property_crc_enabled,
            crc_forced=settings.property_crc_forced,
            long_topics=settings.long_topics_enabled,
        )
        self._tail = ReplicaTail(self.commit_log, self.delay_levels)
        self._closed = False
        self._dispatched_timestamp = 0
        self._refused_at = -1
        self._failed_at: int | None = None  # from here on a replica's records wait for recovery, see DispatchFailed

    def add_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Let `dispatcher` follow the log, after queues and index. Added before `load`, it misses no record.

        After a crash it gets records again that it may have, and must ignore those.
        """
        self.dispatchers.append(dispatcher)
        self._followers.append(dispatcher)

    def append(self, draft: Draft) -> Appended:
        """Store one message; the result has its status and its place."""
        if self._closed or self.role == "SLAVE" or (self.flags.value and not self.flags.writable):
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return append(self._appender, draft)
        except AllocationFailed as error:
            return self._without_space(error)

    def append_run(self, born_host: tuple[str, int], rows: Sequence[Row]) -> list[tuple[int, int, int]]:
        """Store ordinary messages of one sender; returns the places of those stored, see `append_run`."""
        if self._closed or self.role == "SLAVE" or (self.flags.value and not self.flags.writable):
            return []
        return append_run(self._appender, born_host, rows)

    def append_batch(self, drafts: Sequence[Draft]) -> Appended:
        """Store several messages next to each other, all or none."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            return append_drafts(self._appender, drafts)
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
        """Store an ordinary batch send, all or none of it; None when it needs `append_batch`."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return None
        try:
            return append_elements(
                self._appender, born_host, topic, queue_id, batch, born_timestamp, sys_flag, reconsume_times
            )
        except AllocationFailed as error:
            return self._without_space(error)

    def append_batches(self, born_host: tuple[str, int], batches: Sequence[Batch]) -> StoredBatches | None:
        """Store several ordinary batch sends of one sender; None when they need `append_elements`, one by one."""
        if self._closed or self.role == "SLAVE" or not self.flags.writable:
            return None
        appender = self._appender
        try:
            stored = append_batches(appender, born_host, batches)
        except (AllocationFailed, OSError):  # one by one, it is known which of them are stored
            return None
        if stored is not None:
            appender.add_run(self._columns_of(stored, batches))
        return stored

    def _columns_of(self, stored: StoredBatches, batches: Sequence[Batch]) -> ColumnBatch:
        """The records of batches that were just stored."""
        numbers: dict[str, int] = {}
        topic_numbers: list[int] = []
        runs: list[QueueRun] = []
        row = 0
        for (topic, queue_id, *_), count, queue_offset in zip(
            batches, stored.counts, stored.queue_offsets, strict=True
        ):
            topic_numbers.append(numbers.setdefault(topic, len(numbers)))
            runs.append((topic, queue_id, row, row + count, queue_offset))
            row += count
        base = int(stored.physical_offsets[0])
        records = columns_of_heads(
            stored.data,
            stored.physical_offsets - base,
            base,
            stored.heads,
            list(numbers),
            np.repeat(topic_numbers, stored.counts),
        )
        return ColumnBatch(records, self.delay_levels, runs)

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Append a master's bytes, which must begin at the log's end; returns the new end.

        They may begin and end inside a record. `dispatch_pending` then takes the whole records.
        """
        if self.commit_log.log_end == 0 != physical_offset:
            self.commit_log.clear()  # a Java replica has its first file before it learns where its log begins
            self.commit_log.begin_at(physical_offset)
            self._tail.start_at(physical_offset)
            self.dispatched_end = physical_offset
        self.commit_log.write_raw(physical_offset, data)
        return self.commit_log.log_end

    def raw_room(self, bytes_max: int) -> RawRoom:
        """Where a thread may write the master's next bytes while `dispatch_pending` handles those before.

        They become part of the log with `raw_written`.
        """
        return self.commit_log.raw_room(bytes_max)

    def raw_written(self, log_end: int) -> None:
        """Extend the log to `log_end`: these bytes were written to the last `raw_room`."""
        self.commit_log.raw_written(log_end)

    def end_raw(self) -> None:
        """No thread writes into a `raw_room` any more."""
        self.commit_log.end_raw()

    def dispatch_pending(self, on_checked: Callable[[], None] = lambda: None) -> int:
        """Pass new records to queues, index and listeners; returns how many. Cheap when there are none.

        On a replica `on_checked` is called each time `whole_end` has grown, before the queues have the records: the
        master need not wait for them. An error of `on_checked` is raised after they were dispatched.
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
        appender = self._appender
        if not appender.pending and not appender.earlier:
            return 0
        if self.settings.flush_disk_type == "SYNC_FLUSH" and not self.settings.read_uncommitted:
            # A consumer must not see what a crash could still remove.
            batch = appender.all_pending()
            durable = bisect_right(batch, self.commit_log.flushed_end, key=request_end)
            appender.pending = batch[durable:]
            return self._dispatch(batch[:durable]) if durable else 0
        if appender.earlier:
            return sum(map(self._dispatch, appender.take_runs()))
        batch, appender.pending = appender.pending, []
        return self._dispatch(batch)

    @property
    def whole_end(self) -> int:
        """The end of the whole, checked records: up to here a replica may acknowledge."""
        return self._tail.end if self.role == "SLAVE" else self.commit_log.log_end

    @property
    def last_timestamp(self) -> int:
        """Store timestamp of the newest record."""
        return max(self._appender.last_timestamp, self._dispatched_timestamp)

    @property
    def queues_failed(self) -> bool:
        """Whether the last attempt to write queues failed; sends are refused meanwhile."""
        return bool(self.flags.value & RunFlags.LOGICS_QUEUE_ERROR)

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
        for run in self._appender.take_runs():
            self._dispatch(run)

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
        if type(batch) is BatchRequests:
            self.last_record_offset, self.dispatched_end = batch.offsets[-1], batch.end
            self._dispatched_timestamp = batch.store_timestamp
        else:
            last = batch[-1]
            self.last_record_offset, self.dispatched_end = last.physical_offset, request_end(last)
            self._dispatched_timestamp = last.store_timestamp
        for listener in (*self.on_dispatch, *self.on_arrival):
            listener(batch)
        return len(batch)


def request_end(request: DispatchRequest) -> int:
    """Where the record of a request ends."""
    return request.physical_offset + request.size
