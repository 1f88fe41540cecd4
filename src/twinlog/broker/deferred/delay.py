"""Delay levels: when the next message of each level is due, and where a new master resumes.

The messages of a level wait in one queue, in the order in which they came, and all equally long. So only the first can
be due. Its unit in the consume queue holds the delivery time, where other topics have a tag hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

TAKE_OVER_MARGIN_MS = 5_000  # how late a delivery may have been


@dataclass(slots=True)
class LevelCursor:
    """How far one level is delivered, and when its next message is due."""

    level: int
    delay_ms: int
    next_offset: int
    _seen_offset: int = -1
    _due_ms: int = 0

    @property
    def queue_id(self) -> int:
        return self.level - 1

    def due_ms(self, deliver_ms: int, now_ms: int) -> int:
        """When the message at `next_offset` is due, whose unit holds `deliver_ms`.

        It waits at most as long as its level, from the time it is first seen. This matters when the clock was set back
        after the message was stored. Java delivers such a message at once, and so too early.
        """
        if self._seen_offset != self.next_offset:
            self._seen_offset = self.next_offset
            self._due_ms = min(deliver_ms, now_ms + self.delay_ms)
        return self._due_ms

    def advance(self) -> None:
        """The message at `next_offset` is delivered, or can never be."""
        self.next_offset += 1

    def step_back(self, offset: int) -> None:
        """Resume at an earlier message; what follows it is delivered again."""
        self.next_offset = min(self.next_offset, offset)

    def correct(self, queue_min: int, queue_max: int) -> int:
        """Move into the queue's present bounds; returns how many deleted messages were skipped."""
        before = self.next_offset
        self.next_offset = min(max(self.next_offset, queue_min), queue_max)
        return max(self.next_offset - before, 0)


def open_cursors(
    level_delays_ms: Mapping[int, int], offsets: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> list[LevelCursor]:
    """One cursor per level, from the saved offsets; `bounds` are the (min, max) of each level's queue.

    A level without a saved offset starts at the oldest message: nothing is skipped.
    """
    cursors: list[LevelCursor] = []
    for level, delay_ms in sorted(level_delays_ms.items()):
        queue_min, queue_max = bounds[level]
        cursor = LevelCursor(level, delay_ms, offsets.get(level, queue_min))
        cursor.correct(queue_min, queue_max)
        cursors.append(cursor)
    return cursors


def offset_to_resume(next_offset: int, queue_min: int, deliver_ms: Callable[[int], int | None], log_ms: int) -> int:
    """Where a new master resumes, whose predecessor has delivered everything before `next_offset`.

    The predecessor's last deliveries may not have reached our log, which ends at `log_ms`: messages that were due then
    or later cannot have their copy here, and those due shortly before may lack it. They are delivered again.
    """
    while next_offset > queue_min:
        due_ms = deliver_ms(next_offset - 1)
        if due_ms is None or due_ms <= log_ms - TAKE_OVER_MARGIN_MS:
            break
        next_offset -= 1
    return next_offset
