"""Reading an open store: by queue, by time, by place and by key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path

import msgspec

from twinlog.settings.store import StoreSettings
from twinlog.store.errors import OnDisk, UnderRepair
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.index.message_index import Index
from twinlog.store.log.checked_log import LoadedLog, is_whole
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.log_access import RECENT_BYTES, DiskLog, LogAccess, MemoryLog, SeenChunks
from twinlog.store.queues.block_read import AHEAD_UNITS_MAX, AHEAD_UNITS_MIN, look_ahead
from twinlog.store.queues.careful_read import is_sound, read_carefully
from twinlog.store.queues.consume_queue import ConsumeQueue
from twinlog.store.queues.examined import Examined, ExaminedBlocks
from twinlog.store.queues.queue_table import Queue, QueueTable
from twinlog.store.queues.read import (
    Accept,
    AcceptRecord,
    ReadLimits,
    ReadResult,
    ReadStatus,
    read_queue,
)
from twinlog.store.queues.ready_read import read_ready
from twinlog.store.queues.time_search import search_offset, store_time_at
from twinlog.telemetry.log import get_logger
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message
from twinlog.wire.properties import UNIQ_KEY

logger = get_logger(__name__)
_DAMAGED_MAX = 1000
_CHECKED = (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)


class QueryResult(msgspec.Struct):
    """Records found by key, and how far the index reaches."""

    buffers: list[memoryview] = []
    last_update_timestamp: int = 0
    last_update_offset: int = 0
    is_cut: bool = False  # older ones did not fit


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
        self.damaged: dict[int, None] = {}  # places of damaged records that reads have met and nobody has repaired
        self.on_damaged_record: list[Callable[[int], None]] = []  # called in the thread of the read
        self.under_repair: set[int] = set()  # of these, those that a twin is being asked for, for the first time
        self.opened_end = 1 << 62  # where the log ended when this process opened it; everything is old before
        self.examined = ExaminedBlocks(settings.segment_bytes)
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

    @property
    def recent_from(self) -> int:
        """From here on this process has written the log, lately: it is in memory, and as it was written."""
        return max(self.opened_end, self.log_end - RECENT_BYTES)

    def log_in_memory(self) -> MemoryLog:
        """For one read in the event loop: it raises OnDisk instead of waiting for the disk."""
        return MemoryLog(self.commit_log, self.recent_from, self._seen)

    def log_loaded(self) -> LoadedLog:
        """For one read in the event loop, of old records that `log_on_disk` has just brought into memory."""
        return LoadedLog(self.commit_log)

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
        is_patient: bool = False,
        is_large: bool = False,
    ) -> ReadResult:
        """Messages of a queue from `queue_offset` on, as windows on the mapped log.

        Without `log`, this thread waits for what is not in memory. Old records, which `log` recognises, are checked:
        those that are damaged are left out, and the next offset is behind them. With `is_patient`, UnderRepair is
        raised at the first one that a twin may bring back in a moment. With `is_large`, up to 1 MiB is returned.
        """
        queue, limits = self.queues.get(topic, queue_id), self.limits.large if is_large else self.limits
        if log is not None and queue is not None:
            filtered = accept is not None or accept_record is not None
            units = (
                max(limits.units_examined_max, count_max) if filtered else min(limits.count_in_memory_max, count_max)
            )
            log.check_units(queue, queue_offset, units)
        read_at = partial(
            read_queue,
            queue,
            log or self.commit_log,
            limits=limits,
            bytes_max=bytes_max,
            accept=accept,
            accept_record=accept_record,
            correct_offset=self.corrects_offsets,
            kept=self.examined,
        )
        result = read_at(queue_offset, count_max=count_max)
        if log is None or not log.is_old or queue is None or result.status not in _CHECKED:
            return result
        if is_sound(queue, queue_offset, result, filtered=accept is not None or accept_record is not None):
            return result
        return read_carefully(
            queue,
            queue_offset,
            partial(read_at, count_max=1),
            count_max=min(count_max, limits.count_in_memory_max),
            bytes_max=min(bytes_max, limits.bytes_in_memory_max),
            units_max=limits.units_examined_max,
            log_end=self.log_end,
            on_damage=self._await_damaged_unit if is_patient else self._note_damaged_unit,
        )

    def read_ready(
        self, queue: Queue, queue_offset: int, count: int, wanted: Hashable, *, ahead: bool
    ) -> ReadResult | None:
        """What `read` returns, if all that it needs was examined before and is recent; else None.

        `wanted` is the key of a filter, or the name of a reader without one, for whom units are examined `ahead`.
        """
        if not isinstance(queue, ConsumeQueue) or not queue.min <= queue_offset < queue.end:
            return None
        limits, log, block = self.limits, self.commit_log, self.examined.get(queue, wanted)
        if block is None or not block.begin <= queue_offset < block.end:
            block = self._look_ahead(queue, queue_offset, wanted) if ahead else None
            if block is None:
                return None
        physical_min = max(self.recent_from, log.log_end - limits.memory_bytes, log.log_start)
        return read_ready(block, queue, log, physical_min, queue_offset, count, limits)

    def _look_ahead(self, queue: ConsumeQueue, queue_offset: int, reader: Hashable) -> Examined | None:
        if not queue.is_plain or queue.end - queue_offset < AHEAD_UNITS_MIN:
            return None
        try:
            self.log_in_memory().check_units(queue, queue_offset, AHEAD_UNITS_MAX)
        except OnDisk:
            return None
        return look_ahead(queue, queue_offset, reader, self.examined)

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

    def whole_record_at(
        self, physical_offset: int, size: int | None = None, *, log: LogAccess | None = None, noted: bool = True
    ) -> memoryview | None:
        """The same, of this size if it is known; None also when the record is damaged. Old records are checked.

        `noted`: damage found here is reported, since this should be the place of a record.
        """
        source = log or self.commit_log
        record = source.record(physical_offset) if size is None else source.slice(physical_offset, size)
        if record is None or physical_offset >= self.recent_from or is_whole(record):
            return record
        if noted:
            self.note_damage(physical_offset)
        return None

    def _note_damaged_unit(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        self.note_damage(physical_offset, topic=topic, queue_id=queue_id, queue_offset=queue_offset)

    def _await_damaged_unit(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        self._note_damaged_unit(topic, queue_id, queue_offset, physical_offset)
        if physical_offset in self.under_repair:
            raise UnderRepair(physical_offset)

    def note_damage(self, physical_offset: int, **place: object) -> None:
        """The record there is damaged: log it, once, and report it to those who can repair it."""
        if physical_offset not in self.damaged and len(self.damaged) < _DAMAGED_MAX:
            self.damaged[physical_offset] = None
            logger.error("a damaged message is not served", physical_offset=physical_offset, **place)
            for listener in self.on_damaged_record:
                listener(physical_offset)

    def note_repair(self, physical_offset: int) -> None:
        """The record there was written again: filters must examine it again."""
        self.damaged.pop(physical_offset, None)
        self.examined.clear()

    def message_at(
        self, physical_offset: int, size: int | None = None, *, log: LogAccess | None = None
    ) -> Message | None:
        """The message whose record begins there; None when there is none."""
        record = self.whole_record_at(physical_offset, size, log=log)
        return None if record is None else self._decode(record, physical_offset)

    @staticmethod
    def _decode(record: memoryview, physical_offset: int) -> Message | None:
        try:
            message = decode_message(record)
        except RecordError:
            return None
        return message if message.physical_offset == physical_offset else None

    def query(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        bytes_max: int | None = None,
        log: LogAccess | None = None,
    ) -> QueryResult:
        """The newest records of a topic with this unique key or user key, in the order of the log; not copied.

        At least one, and no more of them than `bytes_max` holds. With `log_in_memory` it raises OnDisk if there may be
        any: they may be many.
        """
        if self.index is None:
            return QueryResult()
        in_memory = isinstance(log, MemoryLog)
        query = self.index.query_in_memory if in_memory else self.index.query
        found = query(topic, key, count_max, begin_ms, end_ms)
        if in_memory and found.physical_offsets:
            raise OnDisk
        buffers, length, is_cut = [], 0, False
        for physical_offset in sorted(found.physical_offsets, reverse=True):
            record = self.whole_record_at(physical_offset, log=log)
            message = None if record is None else self._decode(record, physical_offset)
            # The index holds hashes only, and an entry may outlive its record.
            if record is None or message is None or message.topic != topic:
                continue
            if key == message.properties.get(UNIQ_KEY) or key in message.keys:
                length += len(record)
                if bytes_max is not None and buffers and length > bytes_max:
                    is_cut = True
                    break
                buffers.append(record)
        return QueryResult(buffers[::-1], found.last_update_timestamp, found.last_update_offset, is_cut)


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
