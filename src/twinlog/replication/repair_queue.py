"""Which damaged record is fetched from the twin next, and when: without I/O.

One at a time. A place that could not be mended waits longer after each attempt, and a twin that does not answer makes
all places wait. So a disk that is bad as a whole costs one request a minute, not a request per read.
"""

from __future__ import annotations

from dataclasses import dataclass

PLACES_MAX = 1000
PAUSE_MS_MIN, PAUSE_MS_MAX = 1_000, 300_000
TWIN_PAUSE_MS_MAX = 60_000


@dataclass(slots=True)
class _Place:
    due_ms: int
    attempts: int = 0


class RepairQueue:
    """Damaged places of the log, each with the time of its next attempt."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._twin_due_ms = 0  # nobody is asked before
        self._twin_failures = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: int) -> bool:
        return place in self._places

    @property
    def is_waiting_for_twin(self) -> bool:
        """Whether the last twin that was asked did not answer."""
        return self._twin_failures > 0

    def add(self, place: int, now_ms: int) -> bool:
        """A read has met damage there; False if it is known, or too many are."""
        if place in self._places or len(self._places) >= PLACES_MAX:
            return False
        self._places[place] = _Place(now_ms)
        return True

    def next_place(self, now_ms: int) -> int | None:
        """The place whose turn it is."""
        if now_ms < self._twin_due_ms:
            return None
        place, row = min(self._places.items(), key=lambda item: item[1].due_ms, default=(0, None))
        return place if row is not None and row.due_ms <= now_ms else None

    def wait_ms(self, now_ms: int) -> int | None:
        """Until the next turn; None: until a place is added."""
        if not self._places:
            return None
        due_ms = min(row.due_ms for row in self._places.values())
        return max(0, max(due_ms, self._twin_due_ms) - now_ms)

    def done(self, place: int) -> None:
        """The place is mended, or nothing is wrong with it."""
        self._places.pop(place, None)
        self._twin_failures = 0

    def failed(self, place: int, now_ms: int) -> int:
        """The twin answered, and it was of no use for this place; returns the pause."""
        self._twin_failures = 0
        row = self._places.get(place)
        if row is None:
            return 0
        pause_ms = _pause_ms(row.attempts, PAUSE_MS_MAX)
        row.attempts += 1
        row.due_ms = now_ms + pause_ms
        return pause_ms

    def twin_failed(self, now_ms: int) -> int:
        """No twin is known, or it does not answer; returns the pause for all places."""
        pause_ms = _pause_ms(self._twin_failures, TWIN_PAUSE_MS_MAX)
        self._twin_failures += 1
        self._twin_due_ms = now_ms + pause_ms
        return pause_ms


def _pause_ms(attempts: int, pause_ms_max: int) -> int:
    return min(PAUSE_MS_MIN << min(attempts, 20), pause_ms_max)
