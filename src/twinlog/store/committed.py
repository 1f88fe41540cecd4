"""The commits of half messages in a range of the log: which record each of them names.

A commit is an ordinary record whose flag says TRANSACTION_COMMIT and whose `prepared_transaction_offset` is where its
half message stands. The walk goes in slices and keeps no view of a segment between two of them, so that its caller may
let others work in between while segments come and go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twinlog.store.commit_log import CommitLog
from twinlog.store.scan import StopReason, find_record, scan
from twinlog.store.segment import Segment
from twinlog.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK


@dataclass(frozen=True, slots=True)
class Commit:
    """A record that makes a half message visible."""

    physical_offset: int
    size: int
    prepared: int  # physical offset of the half message


def commits_in(commit_log: CommitLog, begin: int, end: int) -> Iterator[list[Commit]]:
    """The commits between `begin`, where a record stands, and `end`, slice by slice."""
    at = begin
    while (at := max(at, commit_log.log_start)) < min(end, commit_log.log_end):
        segment = commit_log.segment_at(at)
        if segment is None:
            return
        found, at = _slice(segment, at, min(end, commit_log.log_end))
        yield found


def _slice(segment: Segment, at: int, end: int) -> tuple[list[Commit], int]:
    """The commits of one slice, and where the next one begins."""
    last = min(end - segment.base, segment.size)
    batch = next(scan(segment.map, at - segment.base, last, segment.base, check_crc=False))
    rows = np.flatnonzero((batch.sys_flag & TRANSACTION_MASK) == TRANSACTION_COMMIT)
    columns = (batch.physical_offset, batch.size, batch.prepared_transaction_offset)
    found = [Commit(*row) for row in zip(*(column[rows].tolist() for column in columns), strict=True)]
    if batch.stop is None:
        return found, segment.base + int(batch.position[-1] + batch.size[-1])
    if batch.stop.reason in (StopReason.BLANK, StopReason.END):
        return found, segment.end
    resume = find_record(segment.map, batch.stop.position + 1, last, last, segment.base)  # damage that was stepped over
    return found, segment.end if resume is None else segment.base + resume
