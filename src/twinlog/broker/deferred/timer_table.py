"""Timer messages that are pending: which are due, and which are delivered already.

Two numbers are the progress, the same two that Java keeps in config/timercheck: a message of the wheel queue is
delivered when its queue offset is below `queue_offset` and its slot is before `read_time_ms`. The rest is pending.
"""

from __future__ import annotations

import heapq
from array import array


class TimerTable:
    """Pending messages of the wheel queue by slot, eight bytes each.

    Invariant: every message below `queue_offset` is in a slot or delivered, and all slots before `read_time_ms` are
    delivered. `add` takes offsets in rising order.
    """

    def __init__(self, precision_ms: int, *, read_time_ms: int = 0, queue_offset: int = 0) -> None:
        self.precision_ms = precision_ms
        self.read_time_ms = read_time_ms
        self.queue_offset = queue_offset
        self._slots: dict[int, array[int]] = {}
        self._times: list[int] = []  # a heap of the slots' times
        self._taken = 0  # how many of the first slot are delivered
        self._replaced: dict[str, int] = {}  # message key -> offset of the message that replaces or cancels it

    def __len__(self) -> int:
        return sum(map(len, self._slots.values())) - self._taken

    def slot_of(self, out_ms: int) -> int:
        """The slot of a time, rounded up to the precision; only times of foreign clients need that."""
        return -(-out_ms // self.precision_ms) * self.precision_ms

    def add(self, queue_offset: int, out_ms: int) -> None:
        slot = self.slot_of(out_ms)
        offsets = self._slots.get(slot)
        if offsets is None:
            if self._times and slot < self._times[0]:
                self._drop_taken()
            offsets = self._slots[slot] = array("q")
            heapq.heappush(self._times, slot)
        offsets.append(queue_offset)

    def replace(self, key: str, queue_offset: int) -> None:
        """Messages with this key before `queue_offset` must not be delivered any more."""
        self._replaced[key] = queue_offset

    def is_replaced(self, key: str | None, queue_offset: int) -> bool:
        """Whether a later message took the place of this one."""
        return key is not None and self._replaced.get(key, -1) > queue_offset

    def forget_replacement(self, key: str, queue_offset: int) -> None:
        if self._replaced.get(key) == queue_offset:
            del self._replaced[key]

    def first_due(self, now_ms: int) -> int | None:
        """The queue offset to deliver next, or None while nothing is due; `delivered` moves on."""
        if not self._times or self._times[0] + self.precision_ms > now_ms:
            return None
        return self._slots[self._times[0]][self._taken]

    def delivered(self) -> None:
        """What `first_due` returned is stored in its real queue, or can never be."""
        self._taken += 1
        if self._taken == len(self._slots[self._times[0]]):
            del self._slots[heapq.heappop(self._times)]
            self._taken = 0

    def caught_up(self, now_ms: int) -> None:
        """Nothing is due at `now_ms`: every slot that far is delivered."""
        assert self.first_due(now_ms) is None, "caught_up after first_due returned None"
        self.read_time_ms = max(self.read_time_ms, now_ms // self.precision_ms * self.precision_ms)

    @property
    def delivered_before_ms(self) -> int:
        """Every slot before this time is delivered; a message that came in late holds it back."""
        return min(self.read_time_ms, self._times[0]) if self._times else self.read_time_ms

    @property
    def wake_ms(self) -> int | None:
        """When `first_due` next has an answer."""
        return self._times[0] + self.precision_ms if self._times else None

    @property
    def low_offset(self) -> int:
        """No message before this queue offset is pending."""
        if not self._times:
            return self.queue_offset
        self._drop_taken()
        return min(offsets[0] for offsets in self._slots.values())

    def before(self, queue_offset: int) -> list[int]:
        """The pending messages before `queue_offset`, in order."""
        if not self._times:
            return []
        self._drop_taken()
        return sorted(offset for offsets in self._slots.values() for offset in offsets if offset < queue_offset)

    def drop_before(self, queue_offset: int) -> None:
        """Remove the pending messages before `queue_offset`: they are parked again at the end of the queue."""
        self._drop_taken()
        for slot in [slot for slot, offsets in self._slots.items() if offsets[0] < queue_offset]:
            kept = array("q", (offset for offset in self._slots[slot] if offset >= queue_offset))
            if kept:
                self._slots[slot] = kept
            else:
                del self._slots[slot]
                self._times.remove(slot)
        heapq.heapify(self._times)

    def _drop_taken(self) -> None:
        if self._taken:
            slot = self._times[0]
            self._slots[slot] = self._slots[slot][self._taken :]
            self._taken = 0
