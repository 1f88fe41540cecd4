"""The requests of one connection that wait for an answer, and one timer for all of them.

A timer for every request would be made and cancelled again for nearly all of them. Here the timer is set for the
earliest deadline that was known when it was set; when it fires, what is due fails with TimeoutError, and it is set for
the earliest of the rest. A request that was answered meanwhile costs nothing. Invariant: while a request waits, the
timer fires at or before its deadline.
"""

import asyncio
import math

from twinlog.wire.command import Command

_SWEEP_SECONDS_MIN = 0.001  # between two sweeps: thousands of requests with deadlines of their own go together


class WaitingAnswers:
    """`futures` by the opaque number of the request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures: dict[int, asyncio.Future[Command]] = {}
        self._loop = loop
        self._deadlines: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def add(self, opaque: int, timeout_ms: float) -> "asyncio.Future[Command]":
        """The answer to the request with this number; it fails with TimeoutError when the time is over."""
        loop = self._loop
        answer: asyncio.Future[Command] = loop.create_future()
        self.futures[opaque] = answer
        self._deadlines[opaque] = deadline = loop.time() + timeout_ms / 1000
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return answer

    def remove(self, opaque: int) -> None:
        self.futures.pop(opaque, None)
        self._deadlines.pop(opaque, None)

    def fail_all(self, error: Exception) -> None:
        """No answer will come any more."""
        futures, self.futures = self.futures, {}
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
        for answer in futures.values():
            _fail(answer, error)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._sweep)

    def _sweep(self) -> None:
        now = max(self._loop.time(), self._timer_at)  # the loop may call a little early, within its clock's resolution
        self._timer, self._timer_at = None, math.inf
        for opaque in [opaque for opaque, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[opaque]
            _fail(self.futures.pop(opaque), TimeoutError())
        if self._deadlines:
            self._set_timer(max(min(self._deadlines.values()), now + _SWEEP_SECONDS_MIN))


def _fail(answer: "asyncio.Future[Command]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # marks it as seen: who waited may be cancelled in the same turn of the loop
