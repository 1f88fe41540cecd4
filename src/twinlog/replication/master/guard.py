"""Whether a master may acknowledge now, or must ask first whether another one has replaced it.

    VALID --no tick for STALL_MS, or `doubt`--> DOUBTFUL --`confirm`--> VALID

A process that was stopped (SIGSTOP, a paused machine) does not notice it. Meanwhile an operator may have promoted a
replica. So after a pause between two ticks nothing is acknowledged until `confirm`: by then it is known that nobody
has replaced this master, or it has become a replica. `clock_ms` must go on while the process or the machine is stopped,
and not jump.

With automatic failover nobody ticks: a lease in etcd is the proof that nobody has replaced this master, and the guard
is valid until shortly before it ends. `pause` stops new requests for a planned switch, while answers still leave.
"""

from __future__ import annotations

from collections.abc import Callable

STALL_MS = 3_000  # a loop that was held up for longer was perhaps stopped
_ALWAYS_MS = 1 << 62


class MasterGuard:
    """Invariant: `is_valid` holds only within STALL_MS of a tick or a confirmation, or until the lease ends."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._valid_until_ms = self._accepts_until_ms = _ALWAYS_MS
        self.paused_for: str | None = None  # why no request is accepted, while a planned switch goes on
        self._waiting: list[Callable[[], None]] = []
        self.stalls = 0  # how often nothing could be acknowledged because ticks were late

    @property
    def is_valid(self) -> bool:
        """Whether requests may be accepted, and answered."""
        return self._clock_ms() <= self._accepts_until_ms

    @property
    def may_acknowledge(self) -> bool:
        """Whether what was accepted before may be answered."""
        return self._clock_ms() <= self._valid_until_ms

    def tick(self) -> bool:
        """Whether all is well; False when `confirm` is needed first."""
        now_ms = self._clock_ms()
        if now_ms > self._valid_until_ms:
            self.stalls += 1
            return False
        self._set(now_ms + STALL_MS)
        return True

    def doubt(self) -> None:
        """Acknowledge nothing until `confirm`."""
        self._set(-1)

    def confirm(self) -> None:
        """What waited goes on, under the role that the broker has now."""
        self._set(self._clock_ms() + STALL_MS)
        self._go_on()

    def lease(self, until_ms: int) -> None:
        """Be valid until `until_ms`; if that is in the future, what waited goes on."""
        self._set(until_ms)
        if self.may_acknowledge:
            self._go_on()

    def free(self) -> None:
        """This broker is a replica: what waited goes on and is refused, and no lease is needed."""
        self.paused_for = None
        self.lease(_ALWAYS_MS)

    def pause(self, why: str | None) -> None:
        """Accept no requests, because of `why`; None ends the pause."""
        self.paused_for = why
        self.lease(self._valid_until_ms)

    def _set(self, until_ms: int) -> None:
        self._valid_until_ms = until_ms
        self._accepts_until_ms = until_ms if self.paused_for is None else -1

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_confirmed(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` after the next confirmation."""
        self._waiting.append(go_on)
