"""The commits of half messages in a range of the log.

A commit is an ordinary record with TRANSACTION_COMMIT in its system flag, whose `prepared_transaction_offset` is the
physical offset of its half message. The range is searched in slices. The thread that owns the log makes a slice,
and another thread may search it: its mapping stays valid if the segment is deleted meanwhile. A slice is dropped after
its search, so that segments can be added and deleted between two slices.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.walk import NextStep, next_step
from twinlog.wire.values.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

RECORDS_PER_SLICE = 2048


@dataclass(frozen=True, slots=True)
class Commit:
    """A record that makes a half message visible."""

    physical_offset: int
    size: int
    prepared: int  # physical offset of the half message


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records of one segment from `at` on, as many as are searched at a time."""

    segment: mmap.mmap
    base: int
    at: int
    end: int

    def commits(self) -> tuple[list[Commit], int]:
        """The commits of the slice, and where the next slice begins."""
        segment, base, last = self.segment, self.base, min(self.end - self.base, len(self.segment))
        walk = scan(segment, self.at - base, last, base, check_crc=False, batch_records=RECORDS_PER_SLICE)
        batch = next(walk)
        rows = np.flatnonzero((batch.sys_flag & TRANSACTION_MASK) == TRANSACTION_COMMIT)
        columns = (batch.physical_offset, batch.size, batch.prepared_transaction_offset)
        found = [Commit(*row) for row in zip(*(column[rows].tolist() for column in columns), strict=True)]
        if batch.stop is None:
            return found, base + int(batch.position[-1] + batch.size[-1])
        resume = None
        if next_step(batch.stop, last, last) is NextStep.DAMAGE:  # which recovery or the replica has skipped
            resume = find_record(segment, batch.stop.position + 1, last, last, base)
        return found, base + (len(segment) if resume is None else resume)


def slice_at(commit_log: CommitLog, at: int, end: int) -> LogSlice | None:
    """The slice that begins at `at`, where a record begins; None when no more follow before `end`."""
    at, end = max(at, commit_log.log_start), min(end, commit_log.log_end)
    segment = commit_log.segment_at(at) if at < end else None
    return None if segment is None else LogSlice(segment.map, segment.base, at, end)
