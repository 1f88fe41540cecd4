"""Reading an open store: by queue, by time, by place and by key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from twinlog.settings.store import StoreSettings
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.index.message_index import Index
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.log_access import DiskLog, LogAccess, MemoryLog, SeenChunks
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.queues.read import (
    Accept,
    AcceptRecord,
    ReadLimits,
    ReadResult,
    read_queue,
)
from twinlog.store.queues.time_search import search_offset, store_time_at
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message
from twinlog.wire.properties import UNIQ_KEY


class QueryResult(msgspec.Struct):
    """Records found by key, and how far the index reaches."""

    buffers: list[memoryview] = []
    last_update_timestamp: int = 0
    last_update_offset: int = 0


class ReadableStore:
    """Log, queues and index of one store directory, and every way to read them. It changes no file."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        role: str,
        topic_kind: Callable[[str], str],
        clock_ms: Callable[[], int],
        ops: FileOps = FILE_OPS,
    ) -> None:
        self.settings = settings
        self.role = role
        self.root = Path(settings.root_dir)
        self.commit_log = CommitLog(
            [Path(part) for part in settings.commit_log_dirs],
            settings.segment_bytes,
            read_only_directories=[Path(part) for part in settings.read_only_dirs],
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
        self.limits = read_limits(settings)
        self._recent_from: int | None = None  # see `log_in_memory`
        self._seen = SeenChunks(settings.segment_bytes)
        self._ops = ops

    @property
    def corrects_offsets(self) -> bool:
        """Whether a read outside the queue returns the offset to go on at."""
        return self.role != "SLAVE" or self.settings.offset_checked_on_replica

    @property
    def log_start(self) -> int:
        return self.commit_log.log_start

    @property
    def log_end(self) -> int:
        return self.commit_log.log_end

    @property
    def flushed_end(self) -> int:
        return self.commit_log.flushed_end

    def log_in_memory(self) -> MemoryLog:
        """For one read in the event loop: it raises OnDisk instead of waiting for the disk."""
        if self._recent_from is None:
            self._recent_from = self.log_end  # what was there before may never have been read by this process
        return MemoryLog(self.commit_log, self._recent_from, self._seen)

    def log_on_disk(self) -> DiskLog:
        """For reads in a worker thread: what they have read is in memory afterwards."""
        return DiskLog(self.commit_log)

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
        log: LogAccess | None = None,
    ) -> ReadResult:
        """Messages of a queue from `queue_offset` on, as windows on the mapped log.

        Without `log`, this thread waits for what is not in memory.
        """
        queue = self.queues.get(topic, queue_id)
        if log is not None and queue is not None:
            limits, filtered = self.limits, accept is not None or accept_record is not None
            units = (
                max(limits.units_examined_max, count_max) if filtered else min(limits.count_in_memory_max, count_max)
            )
            log.check_units(queue, queue_offset, units)
        return read_queue(
            queue,
            log or self.commit_log,
            queue_offset,
            count_max=count_max,
            limits=self.limits,
            bytes_max=bytes_max,
            accept=accept,
            accept_record=accept_record,
            correct_offset=self.corrects_offsets,
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.max_offset(topic, queue_id)

    def search_offset(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False, log: LogAccess | None = None
    ) -> int:
        return search_offset(self.queues.get(topic, queue_id), log or self.commit_log, timestamp_ms, upper=upper)

    def store_time_of(self, topic: str, queue_id: int, queue_offset: int, *, log: LogAccess | None = None) -> int:
        """When the message was stored; -1 when it is not there."""
        return store_time_at(self.queues.get(topic, queue_id), log or self.commit_log, queue_offset)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(physical offset, record size, tags code) of one message."""
        queue = self.queues.get(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return None if unit is None else (unit.physical_offset, unit.size, unit.tags_code or 0)

    def record_at(self, physical_offset: int, *, log: LogAccess | None = None) -> memoryview | None:
        """The bytes of the record that begins there."""
        return (log or self.commit_log).record(physical_offset)

    def message_at(
        self, physical_offset: int, size: int | None = None, *, log: LogAccess | None = None
    ) -> Message | None:
        """The message whose record begins there; None when there is none."""
        source = log or self.commit_log
        record = source.record(physical_offset) if size is None else source.slice(physical_offset, size)
        return None if record is None else self._decode(record, physical_offset)

    @staticmethod
    def _decode(record: memoryview, physical_offset: int) -> Message | None:
        try:
            message = decode_message(record)
        except RecordError:
            return None
        return message if message.physical_offset == physical_offset else None

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, log: LogAccess | None = None
    ) -> QueryResult:
        """The newest records of a topic with this unique key or user key, in the order of the log; not copied."""
        if self.index is None:
            return QueryResult()
        found = self.index.query(topic, key, count_max, begin_ms, end_ms)
        buffers = []
        for physical_offset in sorted(found.physical_offsets):
            record = self.record_at(physical_offset, log=log)
            message = None if record is None else self._decode(record, physical_offset)
            # The index holds hashes only, and an entry may outlive its record.
            if record is None or message is None or message.topic != topic:
                continue
            if key == message.properties.get(UNIQ_KEY) or key in message.keys:
                buffers.append(record)
        return QueryResult(buffers, found.last_update_timestamp, found.last_update_offset)


def read_limits(settings: StoreSettings) -> ReadLimits:
    """How much one read may return, by the settings and this machine's memory."""
    return ReadLimits.of_machine(
        settings.memory_percent,
        bytes_in_memory_max=settings.transfer_bytes_in_memory,
        count_in_memory_max=settings.transfer_count_in_memory,
        bytes_on_disk_max=settings.transfer_bytes_on_disk,
        count_on_disk_max=settings.transfer_count_on_disk,
        units_examined_max=settings.filter_scan_bytes_max // 20,
    )
