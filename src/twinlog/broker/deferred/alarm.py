"""An alarm clock for services: sleeps until the earliest time anybody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """`wait` returns at the earliest time set, or after `look_again_ms` at the latest.

    That look costs next to nothing, and finds what became visible late: SYNC_FLUSH shows a message only once it is on
    disk, and a replica may become the master.
    """

    def __init__(self, clock_ms: Callable[[], int], look_again_ms: int = 1_000) -> None:
        self._clock_ms = clock_ms
        self._look_again_ms = look_again_ms
        self._at_ms: int | None = None
        self._earlier = asyncio.Event()

    def set(self, at_ms: int) -> None:
        """Ring at `at_ms`, or earlier if that was asked for already."""
        if self._at_ms is None or at_ms < self._at_ms:
            self._at_ms = at_ms
            self._earlier.set()

    async def wait(self) -> None:
        latest_ms = self._clock_ms() + self._look_again_ms
        while True:
            self._earlier.clear()
            at_ms = latest_ms if self._at_ms is None else min(self._at_ms, latest_ms)
            left_ms = at_ms - self._clock_ms()
            if left_ms <= 0:
                break
            try:
                async with asyncio.timeout(min(left_ms, self._look_again_ms) / 1000):
                    await self._earlier.wait()
            except TimeoutError:
                if left_ms >= self._look_again_ms:  # the clock was set back meanwhile
                    break
        self._at_ms = None
