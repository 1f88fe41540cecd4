"""Busy waiting: a loop that expects an answer within microseconds polls its sockets instead of sleeping.

To be woken takes longer than a near peer needs to answer: about 60 us on a virtual machine, and four times for each
message of a producer that waits for a replica. So the loop keeps turning for a moment, and each turn polls every
socket; whatever else arrives is served as always. It does so only while the last wait was shorter than the limit, so a
peer that is far away, or seldom answers, costs nothing.

With more processes than cores, the one that should answer may wait for this very core. So each turn offers the core to
others. After a busy wait without an answer, the next two waits sleep instead; if that happens again, the next four, and
so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from twinlog.base.system_calls import yield_core

_DOUBLINGS_MAX = 8


class BusyWait:
    """Keeps the running loop awake from `expect` to `arrived`, for at most the given time."""

    def __init__(self, seconds_max: Callable[[], float], clock: Callable[[], float] = perf_counter) -> None:
        self._seconds_max = seconds_max
        self._clock = clock
        self._since: float | None = None
        self._until = 0.0
        self._last_wait = float("inf")
        self._in_vain = 0  # busy waits in a row that ended without an answer
        self._sleeps = 0  # so many waits are not busy
        self.is_awake = False

    def expect(self) -> None:
        """An answer is expected from now on; while one is expected already, nothing changes."""
        if self._since is not None:
            return
        self._since = self._clock()
        limit = self._seconds_max()
        if self._last_wait >= limit:
            return
        if self._sleeps:
            self._sleeps -= 1
            return
        self._until = self._since + limit
        if not self.is_awake:
            self.is_awake = True
            asyncio.get_running_loop().call_soon(self._turn)

    def arrived(self) -> None:
        """The answer is here. How long it took decides whether the next wait is busy."""
        if self._since is not None:
            self._last_wait = self._clock() - self._since
            self._since = None
            if self._until:
                self._until = 0.0
                self._in_vain = 0

    def _turn(self) -> None:
        if self._clock() < self._until:
            yield_core()
            asyncio.get_running_loop().call_soon(self._turn)
            return
        self.is_awake = False
        if self._until:  # nothing has arrived
            self._until = 0.0
            self._in_vain = min(self._in_vain + 1, _DOUBLINGS_MAX)
            self._sleeps = 1 << self._in_vain
