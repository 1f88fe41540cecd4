"""Which record holds a byte of the log, and where the records of a log end. Bodies are not read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.scan.scan import scan
from twinlog.store.scan.walk import LogEnd, ends_segment, walk_log


@dataclass(frozen=True, slots=True)
class LogPart:
    """One record, or what else fills the log between `begin` and `end`."""

    begin: int
    end: int
    what: str

    def __str__(self) -> str:
        return f"{self.what} at {self.begin} to {self.end}"


def part_at(commit_log: CommitLog, physical_offset: int) -> LogPart | None:
    """What the byte at this offset belongs to; None outside the log."""
    segment = commit_log.segment_at(physical_offset)
    if segment is None:
        return None
    wanted, begin = physical_offset - segment.base, 0
    for batch in scan(segment.map, 0, segment.size, segment.base, check_crc=False):
        if len(batch):
            row = int(np.searchsorted(batch.position, wanted, side="right")) - 1
            begin = int(batch.position[-1] + batch.size[-1])
            if begin > wanted:
                at, size = int(batch.position[row]), int(batch.size[row])
                topic = batch.topics[int(batch.topic_number[row])]
                queue, offset = int(batch.queue_id[row]), int(batch.queue_offset[row])
                return LogPart(segment.base + at, segment.base + at + size, f"record {topic}/{queue}/{offset}")
        if batch.stop is not None:
            what = "the blank end of the segment" if ends_segment(batch.stop, segment.size) else "no valid record"
            return LogPart(segment.base + begin, segment.end, what)
    return None


def records_end(commit_log: CommitLog) -> int:
    """Where the records of a log end; its files are longer, as they are allocated ahead."""
    segments = commit_log.segments
    used = [one for one in segments if any(one.view(0, 8))]
    if not used:
        return commit_log.log_start
    for found in walk_log(commit_log, used[-1].base, check_crc=False):
        if isinstance(found, LogEnd):
            return found.physical_offset
    return commit_log.log_end
