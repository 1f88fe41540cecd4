"""An event loop in a thread of its own, and calls into it that wait for their result.

`asyncio.run_coroutine_threadsafe` makes two futures and a chain of callbacks for a call, and wakes the loop for each.
Here a call is a lock and two members, and calls that come while the loop is about to look are taken together.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    """One call: what to do, its result or error, and a lock that is free once it is done."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Awaitable[T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    async def run(self) -> None:
        try:
            self.result = await self.work
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.done.release()


class LoopThread:
    """Runs from `__init__` to `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: deque[_Call[Any]] = deque()
        self._woken = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self.thread.start()

    def call(self, work: Awaitable[T]) -> T:
        """Await `work` in the loop, from any other thread; its result, or its error."""
        call = _Call(work)
        self._calls.append(call)
        if not self._woken:  # else the loop has yet to look, and finds this call too
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)
        call.done.acquire()
        if call.error is not None:
            try:
                raise call.error
            finally:
                del call  # the error's traceback has this frame, and would keep itself alive
        return call.result  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread; no call may be under way."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join()
        self._loop.close()

    def _begin(self) -> None:
        self._woken = False
        while self._calls:
            task = self._loop.create_task(self._calls.popleft().run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
