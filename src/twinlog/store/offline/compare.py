"""Whether two stores hold the same log: every byte that both have is read once, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.scan.log_parts import LogPart, part_at, records_end

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two logs have in common."""

    starts: tuple[int, int]
    ends: tuple[int, int]
    differs_at: int | None = None
    places: tuple[LogPart | None, LogPart | None] = (None, None)  # what stands at the difference, in each

    @property
    def begin(self) -> int:
        return max(self.starts)

    @property
    def end(self) -> int:
        return max(self.begin, min(self.ends))

    @property
    def is_equal(self) -> bool:
        return self.differs_at is None and self.begin < min(self.ends)


def compare_logs(one: CommitLog, other: CommitLog, progress: Callable[[int], None] = lambda done: None) -> Comparison:
    """Compare from where both logs begin to where the shorter one ends; `progress` gets the bytes of each step."""
    found = Comparison((one.log_start, other.log_start), (records_end(one), records_end(other)))
    at = found.begin
    while at < found.end:
        ours = one.chunk(at, min(_CHUNK_BYTES, found.end - at))
        theirs = other.chunk(at, min(_CHUNK_BYTES, found.end - at))
        assert ours is not None and theirs is not None, at
        size = min(len(ours), len(theirs))
        unequal = np.frombuffer(ours, np.uint8, size) != np.frombuffer(theirs, np.uint8, size)
        if unequal.any():
            differs_at = at + int(unequal.argmax())
            places = (part_at(one, differs_at), part_at(other, differs_at))
            return Comparison(found.starts, found.ends, differs_at, places)
        _release(one, at, size)
        _release(other, at, size)
        at += size
        progress(size)
    return found


def _release(log: CommitLog, at: int, size: int) -> None:
    segment = log.segment_at(at)
    if segment is not None and at + size == segment.end:
        segment.release_pages()
