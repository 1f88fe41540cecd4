"""An event loop whose clock jumps: a test of periods takes no time, and every moment is exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """Never waits for a timer: when nothing is ready, the clock is moved to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        events = super().select(0)
        if not events:
            self.now += max(timeout, 0.0)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at 0 and moves only from timer to timer. Tasks must not wait for threads or peers."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_for(seconds: float, work: Coroutine[Any, Any, Any]) -> None:
    """Run `work` for so many seconds of the loop's clock, then cancel it; its error is raised."""

    async def limited() -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            return

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(limited())


def now_s() -> float:
    """The running loop's time, in whole milliseconds."""
    return round(asyncio.get_running_loop().time(), 3)
