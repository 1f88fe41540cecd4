"""The commit log of a store directory, for an audit: gaps between its files are findings, not errors.

All is read through read-only mappings; a broker may write to the store at the same time. Bytes before `end`, which is
found by scanning the last file, do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from twinlog.spark.errors import BadRecord
from twinlog.spark.reading.stores.log_ranges import SegmentFile, first_record, records_end, segment_files
from twinlog.store.errors import NotAStore
from twinlog.store.lock import has_abort_marker, is_locked
from twinlog.store.log.segment import Segment
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.store.scan.walk import ends_segment

_BACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log at the time of inspection; travels to the workers."""

    name: str
    files: tuple[SegmentFile, ...]
    start: int
    end: int
    is_live: bool
    torn: str = ""  # what follows the end, if it is not zeros

    @property
    def segment_bytes(self) -> int:
        return self.files[0].size


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A record; or, with a `reason`, bytes that are not a valid record."""

    offset: int
    size: int
    reason: str = ""


def list_log(root: Path, directories: tuple[Path, ...]) -> LogFiles:
    """Inspect a log: its files, where its records begin, and where they end."""
    if not root.is_dir():
        raise NotAStore(root)
    files = segment_files(directories, root)
    if not files[0].size:
        raise BadRecord(
            f"segment {files[0].path} has 0 bytes, and so have all others: copy the store again, or repair it"
        )
    live = is_locked(root)
    start = _first_offset(files[0])
    used, end = list(files), 0
    while used and not (end := records_end(used[-1])):
        used.pop()
    if not used:
        return LogFiles(str(root), tuple(files), start, start, live)
    torn = "" if live or has_abort_marker(root) else _torn(used[-1], end)
    return LogFiles(str(root), tuple(used), start, max(start, used[-1].base + end), live, torn)


class LocalLog:
    """Reads the files; a segment is opened at its first use."""

    def __init__(self, listed: LogFiles) -> None:
        self.listed = listed
        self._bases = np.array([one.base for one in listed.files], np.int64)
        self._open: dict[int, Segment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for segment in self._open.values():
            segment.close()
        self._open = {}

    def piece(self, offset: int, bytes_max: int) -> tuple[Segment | None, int, int]:
        """(segment, position, length) from an offset on, within one file; no segment if the file is missing."""
        row = int(np.searchsorted(self._bases, offset, side="right")) - 1
        file = self.listed.files[row] if row >= 0 else None
        if file is None or offset >= file.base + file.size:
            later = self._bases[row + 1 :]
            return None, 0, min(bytes_max, int(later[0]) - offset) if len(later) else bytes_max
        position = offset - file.base
        return self._segment(file), position, min(bytes_max, file.size - position)

    def chunk(self, physical_offset: int, bytes_max: int) -> memoryview | None:
        """Up to so many bytes of one file of the log; None if the file is missing."""
        segment, position, length = self.piece(physical_offset, min(bytes_max, self.listed.end - physical_offset))
        return None if segment is None or length <= 0 else segment.view(position, length)

    def bytes_at(self, offset: int, size: int) -> memoryview | None:
        """Exactly these bytes; None if they are not all in one file of the log."""
        view = self.chunk(offset, size)
        return view if view is not None and len(view) == size else None

    def release(self, offset: int, size: int) -> None:
        segment, position, length = self.piece(offset, size)
        if segment is not None:
            segment.release_pages(position, position + length)

    def records_over(self, begin: int, end: int, *, check_crc: bool = False) -> Iterator[LogSpan]:
        """The records with a byte in [begin, end), and the bytes between them that are not valid records."""
        at = begin
        while at < end:
            segment, position, length = self.piece(at, end - at)
            if segment is not None:
                records = min(segment.size, self.listed.end - segment.base)
                yield from _records_over(segment, position, position + length, records, check_crc)
                segment.release_pages(max(0, position - _BACK_BYTES), position + length)
            at += length

    def holds(self, offset: int) -> bool:
        return self.piece(offset, 1)[0] is not None

    def _segment(self, file: SegmentFile) -> Segment:
        if file.base not in self._open:
            self._open[file.base] = file.open()
        return self._open[file.base]


def _records_over(segment: Segment, low: int, high: int, records_end: int, check_crc: bool) -> Iterator[LogSpan]:
    position: int | None = _record_before(segment, low, records_end)
    base = segment.base
    while position is not None and position < min(high, records_end):
        stop: Stop | None = None
        for batch in scan(segment.map, position, records_end, base, check_crc=check_crc):
            over = (batch.position + batch.size > low) & (batch.position < high)
            for row in np.flatnonzero(over).tolist():
                yield LogSpan(int(batch.physical_offset[row]), int(batch.size[row]))
            stop = batch.stop
            if len(batch) and batch.position[-1] >= high:
                return
        assert stop is not None
        if ends_segment(stop, records_end) or stop.position >= high:
            return
        position = first_record(segment.map, stop.position + 1, high, records_end, base)
        hole_end = min(high, records_end) if position is None else position
        if hole_end > low:
            yield LogSpan(base + stop.position, hole_end - stop.position, str(stop))


def _record_before(segment: Segment, low: int, records_end: int) -> int:
    """The position of a record at or shortly before `low`; the start of the file if there is none."""
    back = _BACK_BYTES
    while low > back:
        found = first_record(segment.map, low - back, low + 1, records_end, segment.base)
        if found is not None:
            return found
        back *= 4
    return 0


def _first_offset(file: SegmentFile) -> int:
    """Where the first file's records begin; a replica that joined within a file has zeros before them."""
    segment = file.open()
    try:
        if any(segment.view(0, 8)):
            return file.base
        for begin, end in segment.data_ranges(0):
            found = first_record(segment.map, max(0, begin - 8), end, file.size, file.base)
            if found is not None:
                return file.base + found
        return file.base
    finally:
        segment.close()


def _torn(file: SegmentFile, end: int) -> str:
    """What is wrong after the last record; empty if zeros or a blank follow."""
    if end >= file.size:
        return ""
    segment = file.open()
    try:
        batch = next(scan(segment.map, end, file.size, file.base, check_crc=False, batch_records=1))
        stop = batch.stop
        return "" if stop is None or stop.reason in (StopReason.END, StopReason.BLANK) else str(stop)
    finally:
        segment.close()
