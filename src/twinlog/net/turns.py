"""Turns: a peer whose requests take long is served for a moment, then waits until others were served.

A chunk may hold thousands of small requests. Handled at once, they keep everybody else waiting: 30 ms for 256 KiB of
unknown requests, and that for each peer that sends so. So a connection stops after TURN_S_MAX, and goes on when its
turn comes. Of all connections that wait for a turn, one goes on in each turn of the loop: a peer that sends a request
now and then waits for one of them at most, however many there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

TURN_S_MAX = 0.002


class Turns:
    """The connections of one server that wait for a turn, in the order in which they came."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of the loop, after those that wait already."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting[0]
        try:
            go_on()  # it may wait again, behind the others
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)
