"""Turns: a peer whose requests take long is served for a moment, then waits until others were served.

A chunk may hold thousands of small requests. Handled at once, they keep everybody else waiting: 30 ms for 256 KiB of
unknown requests, and that for each peer that sends so. So all chunks with several requests share TURN_S_MAX in each
turn of the loop. After it a chunk's first request is still answered, and the others wait: of all connections that wait,
one goes on in each turn of the loop. So a peer that sends one request at a time waits for TURN_S_MAX and for one
request of each other peer at most, however many there are and whatever they send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

TURN_S_MAX = 0.0003


class Turns:
    """The connections of one server that wait for a turn, in the order in which they came."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._ends = 0.0  # of the time for chunks in this turn of the loop; 0.0 while nobody has used any
        self._waiting: deque[Callable[[], None]] = deque()

    def is_over(self) -> bool:
        """Whether a chunk with more requests must wait now; asked after each of them."""
        if not self._ends:
            self._begin()
            return False
        return self.clock() > self._ends

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of the loop, after those that wait already."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    async def mine(self) -> None:
        """Wait for a turn: a new connection is work, too, and hundreds may come at once."""
        turn = asyncio.Event()
        self.wait(turn.set)
        await turn.wait()

    def _begin(self) -> None:
        self._ends = self.clock() + TURN_S_MAX
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._ends = 0.0

    def _next(self) -> None:
        go_on = self._waiting[0]
        self._begin()
        try:
            go_on()  # it may wait again, behind the others
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)
