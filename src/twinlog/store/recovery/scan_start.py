"""Where recovery begins to scan: everything before is surely on disk, in the queues and in the index."""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.store.log.segment import Segment
from twinlog.store.scan.scan import scan


def choose_start(
    first_timestamps: Sequence[tuple[int, int]],
    *,
    clean: bool,
    queues_end: int,
    safe_timestamp: int,
    index_end: int | None,
    bytes_min: int = 0,
) -> int:
    """The number of the first segment to scan.

    `first_timestamps` holds (base, store timestamp of the first record or 0) of every segment. After a clean stop the
    scan starts at the last segment from which the queues have a record, after a crash at the last one whose first
    record is surely in the queues. An index that ends earlier moves the start back to where it ends, and `bytes_min`
    moves it back until so many bytes of whole segments are scanned.
    """
    start = 0
    for number, (base, timestamp) in enumerate(first_timestamps):
        if clean:
            known = base < queues_end
        else:
            known = 0 < timestamp <= safe_timestamp
        if known:
            start = number
    if index_end is not None:
        behind = [number for number, (base, _) in enumerate(first_timestamps) if base <= index_end]
        start = min(start, behind[-1] if behind else 0)
    used = [base for base, timestamp in first_timestamps if timestamp]
    while start > 0 and used and used[-1] - first_timestamps[start - 1][0] < bytes_min:
        start -= 1
    return start


def timestamp_at(segment: Segment, position: int) -> int:
    """The store timestamp of the record at this position; 0 when no record begins there."""
    batch = next(scan(segment.map, position, segment.size, segment.base, check_crc=False, batch_records=1))
    return int(batch.store_timestamp[0]) if len(batch) else 0
