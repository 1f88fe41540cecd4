"""Through the whole log, whatever is in the way: records, holes where no valid record is, and the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.stop import Stop, StopReason

_EDGE_BYTES = 8  # the magic of a record may stand in the next data range


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes between two valid records that are none."""

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
        if stop.reason is StopReason.BLANK or stop.position == segment.size:
            number, position = number + 1, 0
            continue
        resume = next_record(segments, number, stop.position, timestamp)
        here = segment.base + stop.position
        if resume is None:
            yield LogEnd(here, stop)
            return
        number, position = resume
        yield Hole(here, segments[number].base + position, describe(stop))
    yield LogEnd(segments[-1].end if segments else 0, Stop(0, StopReason.END))


def next_record(segments: Sequence[Segment], number: int, position: int, oldest: int) -> tuple[int, int] | None:
    """(segment number, position) of the next valid record behind a place that is none, not older than `oldest`."""
    begin = position + 1
    for later in range(number, len(segments)):
        segment = segments[later]
        for first, last in segment.data_ranges(begin):
            found = find_record(segment.map, max(begin, first - _EDGE_BYTES), last, segment.size, segment.base, oldest)
            if found is not None:
                return later, found
        segment.release_pages()
        begin = 0
    return None


def describe(stop: Stop) -> str:
    return f"{stop.reason.value}: {stop.detail}" if stop.detail else stop.reason.value
