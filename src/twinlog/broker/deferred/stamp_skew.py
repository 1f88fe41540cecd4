"""When a delayed message is due by the steady clock, though its record was stamped with the wall clock.

A delay level's delivery time is its record's stamp plus the delay. Stamps come from the wall clock and never fall, so
they run ahead of the steady clock after the wall clock was set forward, and stand still for a while after it was set
back. The difference is noted when a message is parked. While the clock is not set, there is nothing to note.

What was in the log before this broker became its master was stamped by another clock. Our wall clock is taken for it.
Such a message was parked before that time, whatever its stamp is, so it waits no longer than its delay from then on.
Nothing is delivered early.
"""

from __future__ import annotations

from bisect import bisect_right

# Clocks are read in whole milliseconds and one after the other, so a small lead of the stamps may be a reading error.
# It is ignored: the message may come this much late. A lag is never ignored, or the message would come early.
_LEAD_MS_MIN = 100
_MARKS_MAX = 100_000


class StampSkew:
    """Marks in the log, each with how far stamps are ahead of the steady clock from there to the next mark."""

    def __init__(self, log_end: int = 0, now_ms: int = 0, ahead_ms: int = 0) -> None:
        """This broker is master from `log_end` on; the wall clock is `ahead_ms` ahead of the steady one's `now_ms`."""
        self._led_from, self._led_ms = log_end, now_ms
        self._led_ahead_ms = 0 if 0 < ahead_ms < _LEAD_MS_MIN else ahead_ms
        self._places = [0]
        self._skews = [0]

    def note(self, physical_offset: int, stamp_ms: int, now_ms: int) -> None:
        """A record that begins at `physical_offset` is stamped `stamp_ms` at the steady time `now_ms`."""
        skew_ms = stamp_ms - now_ms
        if skew_ms < self._skews[-1] or skew_ms >= self._skews[-1] + _LEAD_MS_MIN:
            self._places.append(physical_offset)
            self._skews.append(skew_ms)
            if len(self._places) > _MARKS_MAX:
                self._thin_out()

    def _thin_out(self) -> None:
        """Merge each two neighbours with the smaller skew, which is the later delivery; the last mark stays."""
        places, skews = self._places[:-1], self._skews[:-1]
        self._places = [*places[::2], self._places[-1]]
        self._skews = [*(min(skews[at : at + 2]) for at in range(0, len(skews), 2)), self._skews[-1]]

    def due_ms(self, physical_offset: int, deliver_ms: int, delay_ms: int) -> int:
        """The steady time at which the record there is due, whose stamp plus its delay is `deliver_ms`."""
        if physical_offset < self._led_from:
            return min(deliver_ms - self._led_ahead_ms, self._led_ms + delay_ms)
        return deliver_ms - self._skews[bisect_right(self._places, physical_offset) - 1]

    def __len__(self) -> int:
        return len(self._places)
