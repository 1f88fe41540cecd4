"""Waiting until the earliest of several times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """`wait` returns at the earliest time set, or after `wait_ms_max`.

    The limit covers what no alarm is set for. With SYNC_FLUSH a message becomes visible later, when it is on disk. And
    a replica may become the master.
    """

    def __init__(
        self, clock_ms: Callable[[], int], wait_ms_max: int = 1_000, *, moves: list[Callable[[], None]] | None = None
    ) -> None:
        """`moves` gets a function to call after the clock was moved on, as a test may do."""
        self._clock_ms = clock_ms
        if moves is not None:
            moves.append(lambda: self.set(0))
        self._wait_ms_max = wait_ms_max
        self._at_ms: int | None = None
        self._earlier = asyncio.Event()

    def set(self, at_ms: int) -> None:
        """End the wait at `at_ms`; an earlier time that is set already stays."""
        if self._at_ms is None or at_ms < self._at_ms:
            self._at_ms = at_ms
            self._earlier.set()

    async def wait(self) -> None:
        latest_ms = self._clock_ms() + self._wait_ms_max
        while True:
            self._earlier.clear()
            at_ms = latest_ms if self._at_ms is None else min(self._at_ms, latest_ms)
            left_ms = at_ms - self._clock_ms()
            if left_ms <= 0:
                break
            try:
                async with asyncio.timeout(min(left_ms, self._wait_ms_max) / 1000):
                    await self._earlier.wait()
            except TimeoutError:
                if left_ms >= self._wait_ms_max:  # the clock was set back meanwhile
                    break
        self._at_ms = None
