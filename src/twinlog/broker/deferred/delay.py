"""Delay levels: which parked messages are due, level by level, and when to look again.

The queue of level n keeps its messages in the order they came, and all wait equally long, so only the first can be due.
Its unit in the consume queue holds the delivery time where other topics keep a tag hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

TAKE_OVER_MARGIN_MS = 5_000  # how late a delivery may have been


@dataclass(slots=True)
class LevelCursor:
    """How far one level is delivered, and until when its next message waits."""

    level: int
    delay_ms: int
    next_offset: int
    _seen_offset: int = -1
    _due_ms: int = 0

    @property
    def queue_id(self) -> int:
        return self.level - 1

    def due_ms(self, deliver_ms: int, now_ms: int) -> int:
        """When the message at `next_offset` is due, whose unit says `deliver_ms`.

        No message waits longer than its level from the moment it is first seen, which matters when the clock was set
        back after it was stored. Java delivers such a message at once, and early.
        """
        if self._seen_offset != self.next_offset:
            self._seen_offset = self.next_offset
            self._due_ms = min(deliver_ms, now_ms + self.delay_ms)
        return self._due_ms

    def advance(self) -> None:
        """The message at `next_offset` is delivered, or can never be."""
        self.next_offset += 1

    def step_back(self, offset: int) -> None:
        """Go on from an earlier message; what follows it is delivered again."""
        self.next_offset = min(self.next_offset, offset)

    def correct(self, queue_min: int, queue_max: int) -> int:
        """Move into the queue as it is now; how many messages were jumped over because they are gone."""
        before = self.next_offset
        self.next_offset = min(max(self.next_offset, queue_min), queue_max)
        return max(self.next_offset - before, 0)


def open_cursors(
    level_delays_ms: Mapping[int, int], offsets: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> list[LevelCursor]:
    """One cursor per level, from the saved offsets; `bounds` are the (min, max) of each level's queue.

    A level without a saved offset starts at the first message that is left: nothing is skipped.
    """
    cursors = []
    for level, delay_ms in sorted(level_delays_ms.items()):
        queue_min, queue_max = bounds[level]
        cursor = LevelCursor(level, delay_ms, offsets.get(level, queue_min))
        cursor.correct(queue_min, queue_max)
        cursors.append(cursor)
    return cursors


def offset_to_resume(next_offset: int, queue_min: int, deliver_ms: Callable[[int], int | None], log_ms: int) -> int:
    """Where a new master goes on, whose predecessor claims to have delivered everything before `next_offset`.

    The predecessor's last deliveries may not have reached our log, which ends at `log_ms`: messages that were due then
    or later cannot have their copy here, and those due shortly before may lack it. They are delivered again.
    """
    while next_offset > queue_min:
        due_ms = deliver_ms(next_offset - 1)
        if due_ms is None or due_ms <= log_ms - TAKE_OVER_MARGIN_MS:
            break
        next_offset -= 1
    return next_offset
