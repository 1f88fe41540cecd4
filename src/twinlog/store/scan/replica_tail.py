"""The tail of a replica's log, which the master's bytes extend: whole records become dispatch requests, in order.

A transfer may end inside a record, so the tail waits where the last whole record ended. Java dispatches what it
received without checking its CRC. Here a damaged record raises DamagedTransfer, so that the link is opened again and
asks for the bytes once more. If the same bytes come again, the master's own log is damaged there: the tail logs it, and
skips them as soon as a valid record has arrived behind them. The bytes stay equal to the master's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import DamagedTransfer
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.small_scan import SMALL_BYTES_MAX, scan_small
from twinlog.store.scan.stop import Stop
from twinlog.store.scan.walk import NextStep, next_step
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


class ReplicaTail:
    """`end` is how far the log was dispatched."""

    def __init__(self, commit_log: CommitLog, delay_levels: DelayLevels) -> None:
        self.end = 0
        self._log = commit_log
        self._delay_levels = delay_levels
        self._damaged_at = -1
        self._asked_again = False

    def start_at(self, physical_offset: int) -> None:
        """Continue at this offset; the bytes behind it are new."""
        self.end = physical_offset
        self._asked_again = physical_offset == self._damaged_at

    def requests(self) -> Iterator[Sequence[DispatchRequest]]:
        """Requests for every whole record that has arrived since the last call."""
        while self.end < self._log.log_end:
            segment = self._log.segment_at(self.end)
            if segment is None:
                return
            written = min(self._log.log_end, segment.end) - segment.base
            if written - (self.end - segment.base) <= SMALL_BYTES_MAX:
                view, at = memoryview(segment.map), self.end - segment.base
                few, at, waits = scan_small(view, at, written, segment.base, self._delay_levels)
                self.end = segment.base + at
                if few:
                    yield few
                if waits and written < segment.size:
                    return
            stop = None
            for batch in scan(segment.map, self.end - segment.base, written, segment.base):
                stop = batch.stop
                if len(batch):
                    many = ColumnBatch(batch, self._delay_levels)
                    self.end = int(batch.physical_offset[-1] + batch.size[-1])
                    yield many
            assert stop is not None
            behind = self._behind(stop, segment, written)
            if behind is None:
                return
            self.end = behind

    def _behind(self, stop: Stop, segment: Segment, written: int) -> int | None:
        """Where to go on after a scan has stopped; None to wait for more bytes."""
        step = next_step(stop, written, segment.size)
        if step is NextStep.NEXT_SEGMENT:
            return segment.end
        if step is not NextStep.DAMAGE:
            return None
        if self._damaged_at != self.end or not self._asked_again:
            self._damaged_at = self.end
            raise DamagedTransfer(self.end, stop.reason.value)
        log.error("the master's record is damaged", physical_offset=self.end, reason=stop.reason.value)
        found = find_record(segment.map, stop.position + 1, written, written, segment.base)
        if found is not None:
            return segment.base + found
        return segment.end if written == segment.size else None
