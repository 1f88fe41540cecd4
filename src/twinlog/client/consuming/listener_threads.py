"""Threads that call a plain listener: they take messages from one queue, and report in groups to the event loop.

A thread never waits for the loop, so it goes from message to message without a switch of threads. It wakes the loop
when it finds no further message; while there are more, the loop looks for results itself every two milliseconds.
"""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
_LOOK_SECONDS = 0.002


class ListenerThreads(Generic[I, R]):
    """Calls `work(item)` in one of `count` threads for every item, then `report(item, result)` in the event loop.

    `work` must not raise.
    """

    def __init__(self, count: int, work: Callable[[I], R], report: Callable[[I, R], None]) -> None:
        self._count, self._work, self._report = count, work, report
        self._items: queue.SimpleQueue[I | None] = queue.SimpleQueue()
        self._done: deque[tuple[I, R]] = deque()
        self._woken = False
        self._looking = self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = 0  # items that are not reported
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def open_items(self) -> int:
        return self._open

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for i in range(self._count):
            threading.Thread(target=self._run, name=f"consume_{i}", daemon=True).start()

    def put(self, item: I) -> None:
        if self._closed:
            return
        self._open += 1
        self._idle.clear()
        self._items.put(item)
        if not self._looking and self._loop is not None:
            self._looking = True
            self._loop.call_later(_LOOK_SECONDS, self._look)

    async def close(self) -> None:
        """Drop the items that no thread has begun, wait for those in work, and end the threads."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()
                self._open -= 1
        try:
            if self._open:
                await self._idle.wait()
        finally:
            for _ in range(self._count):
                self._items.put(None)

    # -- in a thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        loop, items, done, work = self._loop, self._items, self._done, self._work
        assert loop is not None
        while (item := items.get()) is not None:
            done.append((item, work(item)))
            if not self._woken and items.empty():
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits for this result
                    loop.call_soon_threadsafe(self._take_results)

    # -- in the loop ---------------------------------------------------------------------------

    def _take_results(self) -> None:
        self._woken = False  # before the results are taken: a later one wakes the loop again
        done, report = self._done, self._report
        for _ in range(len(done)):
            item, result = done.popleft()
            self._open -= 1
            report(item, result)
        if not self._open:
            self._idle.set()

    def _look(self) -> None:
        self._take_results()
        self._looking = self._open > 0 and self._loop is not None
        if self._looking and self._loop is not None:
            self._loop.call_later(_LOOK_SECONDS, self._look)
