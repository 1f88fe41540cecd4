"""A store's commit log as byte ranges, for readers that are independent of each other.

    segment 0                        segment 1                        segment 2
    | range | range | range   BLANK| range | range | range   BLANK| range | .. log end | zeros ...

A record belongs to the range in which it starts, and its reader reads past the range's end to finish it. A range that
does not start with its segment searches for the first record whose magic, lengths and physical offset agree. The log's
end is found before anything is read, by scanning the last segment: what a live broker appends later is left for the
next read, and bytes that a truncation left after the end are never read as records.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twinlog.spark.errors import BadRecord
from twinlog.store.errors import NotAStore
from twinlog.store.log.segment import SEGMENT_NAME, Segment
from twinlog.store.scan.record_columns import columns_at
from twinlog.store.scan.scan import scan
from twinlog.store.scan.walk import ends_segment, record_in_ranges
from twinlog.wire.record_layout import MAGIC_PREFIX, RECORD_BYTES_MIN

_WALK_RECORDS = 65536
_SKIP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file of a commit log; `end` is where its records end, counted from its beginning."""

    path: Path
    base: int
    size: int
    end: int

    def open(self) -> Segment:
        return Segment.open(self.path, self.size, writable=False)


@dataclass(frozen=True, slots=True)
class StoreRange:
    """The records that start in [begin, end) of one segment."""

    store: str
    broker_name: str
    segment: SegmentFile
    begin: int
    end: int
    begins_record: bool = False  # a record starts at `begin`: anything else there is damage
    wanted_end: int | None = None  # nothing from here on is wanted, in this range or another one


def segment_files(directories: Sequence[Path], root: Path) -> list[SegmentFile]:
    """All files of a log, oldest first and of one size; gaps between them are not checked."""
    found = sorted(
        (path for place in directories if place.is_dir() for path in place.iterdir() if SEGMENT_NAME.match(path.name)),
        key=lambda path: path.name,
    )
    sized = []
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # a live broker deletes its oldest files
            sized.append((path, path.stat().st_size))
    if not sized:
        raise NotAStore(root)
    size = sized[0][1]
    if len(sized) > 1 and sized[-1][1] < size and not _holds_a_record(sized[-1][0]):
        sized.pop()  # a live broker is allocating it
    for path, one in sized:
        if one != size:
            raise BadRecord(f"segment {path} has {one} bytes, the first one {size}: copy the store again, or repair it")
    return [SegmentFile(path, int(path.name), size, size) for path, _ in sized]


def _holds_a_record(path: Path) -> bool:
    """Whether something was written to a file; records begin at its first byte."""
    with path.open("rb") as file:
        return any(file.read(8))


def list_segments(directories: Sequence[Path], root: Path) -> list[SegmentFile]:
    """The segments that hold records, oldest first, up to the log's end as it is now."""
    files = segment_files(directories, root)
    if not files[0].size:
        if len(files) > 1:
            raise BadRecord(
                f"segment {files[0].path} has 0 bytes, and so have others: copy the store again, or repair it"
            )
        return []  # a broker is creating its first file
    for before, after in itertools.pairwise(files):
        if before.base + before.size != after.base:
            raise BadRecord(f"segment {after.path} does not begin where {before.path.name} ends: a file is missing")
    while files:
        last = files.pop()
        end = records_end(last)
        if end:
            return [*files, SegmentFile(last.path, last.base, last.size, end)]
    return []


def log_end(segments: Sequence[SegmentFile]) -> int:
    """Where the records of a log end, as `list_segments` found it."""
    return segments[-1].base + segments[-1].end if segments else 0


def record_start(segments: Sequence[SegmentFile], place: int) -> int:
    """The first physical offset from `place` on where a record or a segment begins; else the log's end."""
    for file in segments:
        if file.base <= place < file.base + file.size:
            if place == file.base:
                return place
            segment = file.open()
            try:
                found = first_record(segment.map, place - file.base, file.end, file.end, file.base)
            finally:
                segment.close()
            return file.base + (file.end if found is None else found)
    return log_end(segments)


def plan_log_ranges(
    segments: Sequence[SegmentFile],
    split_bytes: int,
    *,
    store: str,
    broker_name: str,
    begin: int = 0,
    end: int | None = None,
) -> list[StoreRange]:
    """The segments between physical offsets `begin` and `end`, in ranges of about `split_bytes`."""
    ranges = []
    for segment in segments:
        first = max(begin - segment.base, 0)
        last = segment.end if end is None else min(end - segment.base, segment.end)
        wanted_end = None if end is None else end - segment.base
        for at in range(first, last, split_bytes):
            until = min(at + split_bytes, last)
            ranges.append(StoreRange(store, broker_name, segment, at, until, wanted_end=wanted_end))
    return ranges


def first_record(buffer: mmap.mmap | bytes, begin: int, search_end: int, end: int, base: int) -> int | None:
    """The first position in [begin, search_end) of a record with valid fields; its body is not checked."""
    at = buffer.find(MAGIC_PREFIX, begin + 4, min(search_end + 4 + len(MAGIC_PREFIX), end))
    while at >= 0:
        position = at - 4
        if position >= search_end:
            return None
        if _is_record(buffer, position, end, base):
            return position
        at = buffer.find(MAGIC_PREFIX, at + 1, min(search_end + 4 + len(MAGIC_PREFIX), end))
    return None


def _is_record(buffer: mmap.mmap | bytes, position: int, end: int, base: int) -> bool:
    size = int.from_bytes(buffer[position : position + 4], "big", signed=True)
    if size < RECORD_BYTES_MIN or position + size > end:
        return False
    found, bad = columns_at(memoryview(buffer), np.array([position]), end, base, True)
    return len(found) == 1 and bad is None


def records_end(file: SegmentFile) -> int:
    """Where the records of a segment end; damage before that is skipped, its reader reports it."""
    segment = file.open()
    try:
        position, timestamp, retried = 0, 0, -1
        while True:
            stop = None
            for batch in scan(
                segment.map, position, file.size, file.base, check_crc=False, batch_records=_WALK_RECORDS
            ):
                if len(batch):
                    timestamp = max(timestamp, int(batch.store_timestamp.max()))
                    segment.release_pages(int(batch.position[0]), int(batch.position[-1]))
                stop = batch.stop
            segment.release_pages()
            assert stop is not None
            if ends_segment(stop, file.size):
                return file.size
            position = stop.position
            later = record_in_ranges(segment, position + 1, _written_ranges(segment, position + 1), timestamp)
            if later is None:
                return position
            if retried == position:  # not a record that a broker is writing, but a damaged one
                position = later
            else:
                retried = position
    finally:
        segment.close()


def _written_ranges(segment: Segment, begin: int) -> Iterator[tuple[int, int]]:
    """The parts from `begin` on that are not all zeros. Skipping zeros first is ten times faster than a search."""
    for first, last in segment.data_ranges(begin):
        for at in range(first, last, _SKIP_BYTES):
            end = min(at + _SKIP_BYTES, last)
            if (
                np.frombuffer(segment.map, np.uint8, end - at, at)
                .view(np.uint64 if (end - at) % 8 == 0 else np.uint8)
                .any()
            ):
                yield at, end
            segment.release_pages(at, end)
