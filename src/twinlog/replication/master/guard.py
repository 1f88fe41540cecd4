"""Whether a master may acknowledge now, or must ask first whether another one has replaced it.

    VALID --no tick for STALL_MS, or `doubt`--> DOUBTFUL --`confirm`--> VALID

A process that was stopped (SIGSTOP, a paused machine) does not notice it. Meanwhile an operator may have promoted a
replica. So after a pause between two ticks nothing is acknowledged until `confirm`: by then it is known that nobody
has replaced this master, or it has become a replica. `clock_ms` must go on while the process is stopped, and not jump.
"""

from __future__ import annotations

from collections.abc import Callable

STALL_MS = 3_000  # a loop that was held up for longer was perhaps stopped
_ALWAYS_MS = 1 << 62


class MasterGuard:
    """Invariant: after the first tick, `is_valid` holds only within STALL_MS of a tick or a confirmation."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._valid_until_ms = _ALWAYS_MS
        self._waiting: list[Callable[[], None]] = []
        self.stalls = 0  # how often nothing could be acknowledged because ticks were late

    @property
    def is_valid(self) -> bool:
        return self._clock_ms() <= self._valid_until_ms

    def tick(self) -> bool:
        """Whether all is well; False when `confirm` is needed first."""
        now_ms = self._clock_ms()
        if now_ms > self._valid_until_ms:
            self.stalls += 1
            return False
        self._valid_until_ms = now_ms + STALL_MS
        return True

    def doubt(self) -> None:
        """Acknowledge nothing until `confirm`."""
        self._valid_until_ms = -1

    def confirm(self) -> None:
        """What waited goes on, under the role that the broker has now."""
        self._valid_until_ms = self._clock_ms() + STALL_MS
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_confirmed(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` after the next confirmation."""
        self._waiting.append(go_on)
