"""Recovery at start: every whole record is kept, queues and index become complete.

    choose the first segment to scan             `choose_start`, pure
    scan the log from there                      records that queues or index miss are dispatched,
                                                 units that differ from their records are written again
      a place without a valid record, and one behind it    -> quarantine, go on behind the damage
      a place without a valid record, and none behind it   -> the log ends here
    cut log, queues and index at the end, zeros behind it

Stronger than Java, which neither compares physical offsets nor goes on behind a bad record: see `quarantine` for
how the result stays readable for Java. What lies before the first scanned segment is trusted, as in Java,
but at least the last 256 MiB are scanned; `twinlog store verify` checks everything.

A place without a valid record counts as damage only if a valid record follows that carries its own physical offset
and is not older than the last good one. Java leaves old bytes behind the end when it cuts a log; they are
older than anything written after the cut, and must not become part of the log again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import Dispatcher
from twinlog.store.errors import RecoveryStopped
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.index.message_index import Index
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.queues.consume_queue import ConsumeQueue
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.recovery.checkpoint import Checkpoint
from twinlog.store.recovery.progress import RecoveryProgress
from twinlog.store.recovery.quarantine import Damage, redirect_units, replace_bytes, save_bytes
from twinlog.store.recovery.scan_start import choose_start, timestamp_at
from twinlog.store.recovery.unit_repair import repair_units
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.store.scan.walk import ends_segment, next_record
from twinlog.telemetry.log import get_logger
from twinlog.wire.values.sys_flag import TRANSACTION_HIDDEN, TRANSACTION_MASK

log = get_logger(__name__)
SCAN_BYTES_MIN = 256 * 1024 * 1024  # a third of a second; of small files hardly anything would be scanned otherwise
_QUEUES_CHECKED_MAX = 512  # of one batch: comparing units of thousands of queues takes longer than it is worth
_RELEASE_BYTES = 32 * 1024 * 1024
TORN_BYTES_MAX = 8 * 1024 * 1024  # of a torn tail this much is kept in quarantine, more than any record


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did."""

    clean: bool
    log_start: int = 0
    log_end: int = 0
    scanned_from: int = 0
    records: int = 0
    dispatched: int = 0
    units_repaired: int = 0
    last_record: int = -1  # where the last valid record begins
    last_timestamp: int = 0
    damages: list[Damage] = field(default_factory=list)
    seconds: float = 0.0


class Recovery:
    """One recovery of a loaded log and loaded queues; `run` does it all."""

    def __init__(
        self,
        root: Path,
        commit_log: CommitLog,
        queues: QueueTable,
        dispatchers: Sequence[Dispatcher],
        *,
        followers: Sequence[Dispatcher] = (),
        clean: bool,
        checkpoint: Checkpoint,
        delay_levels: DelayLevels,
        index: Index | None = None,
        index_safe: bool = False,
        check_crc: bool = True,
        check_record_crc: bool = False,
        on_damage: Callable[[Damage], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
        ops: FileOps = FILE_OPS,
    ) -> None:
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._dispatchers = dispatchers
        self._followers = followers  # dispatchers of plug-ins: what they have is not known here
        self._checkpoint = checkpoint
        self._delay_levels = delay_levels
        self._index = index
        self._index_end = index.end_physical if index is not None else None
        if index is not None and clean and not index.is_empty:  # else some keys of the last record may be missing
            self._index_end = index.end_physical + 1
        self._index_safe = index_safe
        self._crc = {"check_crc": check_crc, "check_record_crc": check_record_crc}
        self._on_damage = on_damage
        self._stopped = stopped
        self._progress: RecoveryProgress | None = None
        self._ops = ops
        self._report = RecoveryReport(clean)

    def run(self) -> RecoveryReport:
        """Scan, dispatch what is missing, repair, and cut what is torn."""
        report, began = self._report, time.perf_counter()
        if not self._log.segments:  # as in Java: without a log, queues point at nothing
            self._queues.delete_all()
            if self._index is not None:
                self._index.delete_all()
            return report
        report.log_start = self._log.log_start
        start = choose_start(
            [(segment.base, timestamp_at(segment, 0)) for segment in self._log.segments],
            clean=report.clean,
            queues_end=self._queues.end_physical,
            safe_timestamp=self._checkpoint.safe_timestamp(with_index=self._index_safe),
            index_end=self._index_end,
            bytes_min=SCAN_BYTES_MIN,
        )
        report.scanned_from = self._log.segments[start].base
        self._progress = RecoveryProgress(report.scanned_from, self._log.segments[-1].end, began)
        self._queues.truncate_after(self._log.segments[-1].end)  # units that no scan could correct
        report.log_end = self._scan(start)
        self._log.truncate(report.log_end, durable=True)
        self._queues.truncate_after(report.log_end)
        if self._index is not None:
            self._index.truncate_after(report.log_end)
        self._queues.correct_min(report.log_start)
        if not report.clean:
            self._log.flushed_end = min(self._log.flushed_end, report.scanned_from)
        report.seconds = time.perf_counter() - began
        return report

    def _scan(self, start: int) -> int:
        """Go through the segments; returns where the log ends."""
        segments, number, position = self._log.segments, start, 0
        while number < len(segments):
            segment = segments[number]
            stop = self._scan_segment(segment, position)
            segment.release_pages()
            if ends_segment(stop, segment.size):
                number, position = number + 1, 0
                continue
            here = segment.base + stop.position
            resume = next_record(segments, number, stop.position, self._report.last_timestamp)
            if resume is None:
                self._report_torn(here, stop)
                return here
            number, position = resume
            self._replace(here, segments[number].base + position, stop)
        return segments[-1].end

    def _scan_segment(self, segment: Segment, position: int) -> Stop:
        """Take the records of one segment; returns where and why they end."""
        batches = scan(segment.map, position, segment.size, segment.base, **self._crc)
        last, released = next(batches), position
        for batch in batches:  # one batch behind, as the last record is checked again
            if len(batch):
                self._take(last)
                last = batch
                if (here := int(batch.position[0])) - released > _RELEASE_BYTES:
                    segment.release_pages(released, here)
                    released = here
            else:
                last.stop = batch.stop
        assert last.stop is not None
        if not self._report.clean and last.stop.reason is not StopReason.BLANK:
            last = _without_torn_properties(last)
            assert last.stop is not None
        self._take(last)
        return last.stop

    def _take(self, batch: ScannedRecords) -> None:
        """Dispatch the records that the queues or the index do not have yet."""
        if not len(batch):
            return
        if self._stopped():
            raise RecoveryStopped(self._root, self._log.log_end - int(batch.physical_offset[0]))
        report = self._report
        line = self._progress.reached(int(batch.physical_offset[0]), time.perf_counter()) if self._progress else None
        if line is not None:
            log.info("recovering the commit log", root=self._root, **dataclasses.asdict(line))
        report.records += len(batch)
        report.last_record = int(batch.physical_offset[-1])
        report.last_timestamp = max(report.last_timestamp, int(batch.store_timestamp.max()))
        missing = self._missing(batch)
        if missing.any():
            requests = ColumnBatch(batch.select(missing), self._delay_levels)
            report.dispatched += len(requests)
            for dispatcher in self._dispatchers:
                dispatcher.dispatch(requests)
        if not report.clean:  # Java's dispatchers get all of these as well; a clean stop has flushed every follower
            missing[:] = True
        if self._followers and missing.any():
            requests = ColumnBatch(batch.select(missing), self._delay_levels)
            for dispatcher in self._followers:
                dispatcher.dispatch(requests)

    def _missing(self, batch: ScannedRecords) -> np.ndarray:
        """Which records the queues or the index do not have; units that they have wrong are corrected."""
        keys = batch.topic_number << 32 | batch.queue_id.astype(np.int64) & 0xFFFFFFFF
        _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
        numbers = numbers.reshape(-1)
        queued = batch.sys_flag & TRANSACTION_HIDDEN == 0
        ends = np.zeros(len(firsts), np.int64)
        for number, row in enumerate(firsts.tolist()):
            queue = self._queues.get(batch.topics[int(batch.topic_number[row])], int(batch.queue_id[row]))
            if queue is None:
                continue
            if isinstance(queue, ConsumeQueue) and len(firsts) <= _QUEUES_CHECKED_MAX:
                rows = np.flatnonzero(queued & (numbers == number))
                repaired = repair_units(queue, batch, rows, self._log, self._delay_levels)
                if repaired:
                    self._report.units_repaired += repaired
                    log.error("wrong units replaced", topic=queue.topic, queue_id=queue.queue_id, count=repaired)
            ends[number] = queue.end_physical
        missing = queued & (batch.physical_offset + batch.size > ends[numbers])
        if self._index_end is not None:
            indexed = batch.sys_flag & TRANSACTION_MASK != TRANSACTION_MASK
            missing |= indexed & (batch.physical_offset >= self._index_end)
        return missing

    def _replace(self, begin: int, end: int, stop: Stop) -> None:
        damage = self._keep(Damage(begin, end, str(stop)))
        timestamp = self._report.last_timestamp
        if timestamp == 0:
            timestamp = self._timestamp_at(end)
        # Units first: once the bytes are good again, nothing would show that units are still wrong.
        lost = redirect_units(self._queues, begin, end)
        replace_bytes(self._log, damage, timestamp, lost)

    def _timestamp_at(self, physical_offset: int) -> int:
        segment = self._log.segment_at(physical_offset)
        return timestamp_at(segment, physical_offset - segment.base) if segment is not None else 0

    def _report_torn(self, end: int, stop: Stop) -> None:
        """Keep the bytes of a torn record, if there are any: a tail of zeros is a normal end."""
        segment = self._log.segment_at(end)
        assert segment is not None
        first = end - segment.base
        ranges = segment.data_ranges(first)
        if stop.reason is StopReason.END or not ranges:
            return
        last = _last_nonzero(segment, first, min(ranges[-1][1], first + TORN_BYTES_MAX))
        self._keep(Damage(end, segment.base + last, str(stop), torn_tail=True))

    def _keep(self, damage: Damage) -> Damage:
        path = save_bytes(self._root, self._log, damage, self._ops)
        damage = Damage(damage.begin, damage.end, damage.reason, damage.torn_tail, path)
        self._report.damages.append(damage)
        log.error(
            "a torn tail was cut off" if damage.torn_tail else "damaged records were replaced",
            physical_offset=damage.begin,
            bytes=damage.end - damage.begin,
            reason=damage.reason,
            kept_in=path,
        )
        if self._on_damage is not None:
            self._on_damage(damage)
        return damage


def _without_torn_properties(batch: ScannedRecords) -> ScannedRecords:
    """The batch without its last record if the end of that is missing.

    No checksum covers the properties. But a torn write leaves zeros, and properties do not end with one.
    """
    if not len(batch) or not batch.properties_length[-1]:
        return batch
    end = int(batch.position[-1] + batch.size[-1])
    if batch.buffer[end - 1] != 0:
        return batch
    shorter = batch.select(slice(0, -1))
    shorter.stop = Stop(int(batch.position[-1]), StopReason.LENGTHS, "properties end in zeros")
    return shorter


def _last_nonzero(segment: Segment, first: int, last: int) -> int:
    """The end of the last byte in the range that is not zero."""
    while last > first:
        begin = max(first, last - 1024 * 1024)
        found = np.flatnonzero(np.frombuffer(segment.view(begin, last - begin), np.uint8))
        if len(found):
            return begin + int(found[-1]) + 1
        last = begin
    return first
