"""Several pulls in flight at once, without I/O.

A queue's offsets are dense, so the next pull can be sent before the last one is answered. The range is split into
slots. Several slots are asked for at once, and their answers are returned in order, in whatever order they arrive:

    | taken | slot: complete | slot: asked from 64 | slot: asked | not yet asked ...
             ^ take()                ^ a short answer is followed by a request for the rest of the slot
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Slot:
    """A stretch of the range: `at` is the next offset to ask for."""

    end: int
    at: int
    asked: bool = False
    bodies: list[memoryview] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.at >= self.end


@dataclass(frozen=True, slots=True)
class Pull:
    """A request to send: up to `count` messages from `offset` on."""

    slot: Slot
    offset: int
    count: int


class PullWindow:
    """The slots of [start, end) that are asked for and not taken."""

    def __init__(self, start: int, end: int, *, step: int, depth: int, count_max: int | None = None) -> None:
        """`count_max` is how many messages one request may ask for; by default a whole slot."""
        self.end = end
        self._next = start
        self._step = step
        self._depth = depth
        self._count_max = count_max
        self._slots: deque[Slot] = deque()

    @property
    def is_done(self) -> bool:
        return not self._slots and self._next >= self.end

    @property
    def at(self) -> int:
        """The first offset that has not arrived."""
        return self._slots[0].at if self._slots else self._next

    def pulls(self) -> list[Pull]:
        """What to ask for now."""
        while len(self._slots) < self._depth and self._next < self.end:
            begin = self._next
            self._next = min(begin + self._step, self.end)
            self._slots.append(Slot(self._next, begin))
        pulls = []
        for slot in self._slots:
            if not slot.asked and not slot.is_complete:
                slot.asked = True
                pulls.append(Pull(slot, slot.at, min(slot.end - slot.at, self._count_max or slot.end - slot.at)))
        return pulls

    def answer(self, pull: Pull, next_offset: int, body: memoryview | None = None) -> bool:
        """Record an answer that continues at `next_offset`; False if it made no progress."""
        slot = pull.slot
        slot.asked = False
        if body:
            slot.bodies.append(body)
        moved = next_offset > slot.at
        got = next_offset - pull.offset
        if moved and self._count_max is None and got < pull.count:
            self._step = max(got, 1)  # the broker returns fewer at once: a larger slot would need two requests
        slot.at = max(next_offset, slot.at)
        return moved

    def drop_asked(self) -> None:
        """The connection is lost: what was asked for must be asked for again."""
        for slot in self._slots:
            slot.asked = False

    def give_up(self) -> None:
        """Nothing more will come: complete every slot with what has arrived."""
        self._next = self.end
        for slot in self._slots:
            slot.at, slot.asked = slot.end, False

    def take(self) -> list[memoryview]:
        """The bodies at the front that are complete, in order."""
        bodies: list[memoryview] = []
        while self._slots and self._slots[0].is_complete:
            bodies += self._slots.popleft().bodies
        return bodies
