"""A loop that expects something within microseconds looks for it instead of falling asleep.

To be woken takes longer than the peer takes to answer: on a virtual machine 60 us, four times for each message of
a producer that waits for a replica. So for a moment the loop turns on, each turn with a look at every socket;
whatever else arrives is served as always. It is done only while the last wait was short enough for that:
a peer that is far away, or seldom has something to say, costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter


class Attention:
    """Keeps the running loop awake from `expect` to `arrived`, for at most the given time."""

    def __init__(self, seconds_max: Callable[[], float], clock: Callable[[], float] = perf_counter) -> None:
        self._seconds_max = seconds_max
        self._clock = clock
        self._since: float | None = None
        self._until = 0.0
        self._last_wait = float("inf")
        self.is_awake = False

    def expect(self) -> None:
        """Something is on its way, unless it was already."""
        if self._since is not None:
            return
        self._since = self._clock()
        limit = self._seconds_max()
        if self._last_wait < limit:
            self._until = self._since + limit
            if not self.is_awake:
                self.is_awake = True
                asyncio.get_running_loop().call_soon(self._turn)

    def arrived(self) -> None:
        """There it is; the next wait goes by how long this one was."""
        if self._since is not None:
            self._last_wait = self._clock() - self._since
            self._since = None
            self._until = 0.0

    def _turn(self) -> None:
        self.is_awake = self._clock() < self._until
        if self.is_awake:
            asyncio.get_running_loop().call_soon(self._turn)
