"""Through the whole log: records, holes where no valid record is, and the end.

This module owns the rule where a walk goes on after a scan has stopped: `next_step` for one segment, of which perhaps
not all bytes have arrived yet, and `next_record` for the search behind damage. Recovery, replicas, offline commands and
Spark readers all ask here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.wire.record_layout import BLANK_BYTES

_EDGE_BYTES = BLANK_BYTES  # the magic of a record may be in the next data range


class NextStep(enum.Enum):
    """Where a walk goes on after a scan has stopped."""

    NEXT_SEGMENT = "the segment has no more records"
    WAIT = "the bytes that follow have not arrived yet"
    ZEROS = "nothing was written here"
    DAMAGE = "no valid record: search for the next one"


def next_step(stop: Stop, arrived: int, segment_size: int) -> NextStep:
    """Where to go on in a segment of which the first `arrived` bytes are there.

    the scan stopped at                     the segment is complete    more bytes will come
    a blank record                          NEXT_SEGMENT               WAIT
    the segment's last 7 bytes, or its end  NEXT_SEGMENT               WAIT
    the last 7 bytes that have arrived                                 WAIT
    a record that runs over the end         DAMAGE                     WAIT
    zeros                                   ZEROS                      ZEROS
    any other bytes                         DAMAGE                     DAMAGE
    """
    is_complete = arrived == segment_size
    if stop.reason is StopReason.BLANK or segment_size - stop.position < BLANK_BYTES:
        return NextStep.NEXT_SEGMENT if is_complete else NextStep.WAIT
    if not is_complete and (stop.reason is StopReason.SHORT or arrived - stop.position < BLANK_BYTES):
        return NextStep.WAIT
    return NextStep.ZEROS if stop.reason is StopReason.END else NextStep.DAMAGE


def ends_segment(stop: Stop, segment_size: int) -> bool:
    """Whether a complete segment has no more records behind the stop."""
    return next_step(stop, segment_size, segment_size) is NextStep.NEXT_SEGMENT


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes between two valid records that are not a valid record."""

    begin: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the records end, and what is there: zeros, or the beginning of something torn."""

    physical_offset: int
    stop: Stop

    @property
    def is_torn(self) -> bool:
        return self.stop.reason is not StopReason.END


def walk_log(
    commit_log: CommitLog, begin: int | None = None, *, check_crc: bool = True, check_record_crc: bool = False
) -> Iterator[ScannedRecords | Hole | LogEnd]:
    """Everything from `begin` (a record, or the log's start) to the end, in bounded memory."""
    segments = list(commit_log.segments)
    begin = commit_log.log_start if begin is None else begin
    number = next((n for n, one in enumerate(segments) if one.base <= begin < one.end), len(segments))
    position = begin - segments[number].base if number < len(segments) else 0
    timestamp, stop = 0, Stop(0, StopReason.END)
    while number < len(segments):
        segment = segments[number]
        for batch in scan(
            segment.map, position, segment.size, segment.base, check_crc=check_crc, check_record_crc=check_record_crc
        ):
            if len(batch):
                timestamp = max(timestamp, int(batch.store_timestamp.max()))
                yield batch
            stop = batch.stop or stop
        segment.release_pages()
        if ends_segment(stop, segment.size):
            number, position = number + 1, 0
            continue
        resume = next_record(segments, number, stop.position, timestamp)
        here = segment.base + stop.position
        if resume is None:
            yield LogEnd(here, stop)
            return
        number, position = resume
        yield Hole(here, segments[number].base + position, str(stop))
    yield LogEnd(segments[-1].end if segments else 0, Stop(0, StopReason.END))


def next_record(segments: Sequence[Segment], number: int, position: int, oldest: int) -> tuple[int, int] | None:
    """(segment number, position) of the next valid record behind a damaged place, not older than `oldest`.

    None means that the log ends at that place.
    """
    begin = position + 1
    for later in range(number, len(segments)):
        segment = segments[later]
        found = record_in_ranges(segment, begin, segment.data_ranges(begin), oldest)
        if found is not None:
            return later, found
        segment.release_pages()
        begin = 0
    return None


def record_in_ranges(segment: Segment, begin: int, ranges: Iterable[tuple[int, int]], oldest: int) -> int | None:
    """The position of the first valid record from `begin` on; only `ranges` of the segment hold more than zeros."""
    for first, last in ranges:
        found = find_record(segment.map, max(begin, first - _EDGE_BYTES), last, segment.size, segment.base, oldest)
        if found is not None:
            return found
    return None
