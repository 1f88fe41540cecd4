"""An event loop in a thread of its own, and calls into it that wait for their result.

`asyncio.run_coroutine_threadsafe` makes two futures and a chain of callbacks for a call, and wakes the loop for each.
Here a call is a lock and two members, and calls that come while the loop is about to look are taken together.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from twinlog.client.errors import BadArgument, ClientClosed

T = TypeVar("T")
_END_SECONDS_MAX = 5.0  # for calls that are cancelled when the thread ends


class _Call(Generic[T]):
    """One call: what to do, its result or error, and a lock that is free once it is done."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
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

    def give_up(self, error: Exception) -> None:
        """Nothing will run it, or end it, any more."""
        self.error = error
        self.done.release()


class LoopThread:
    """Runs from `__init__` to `stop`. Invariant: once it has ended, no call waits."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: deque[_Call[Any]] = deque()
        self._woken = self._closed = False
        self._running: dict[asyncio.Task[None], _Call[Any]] = {}
        self._ending: asyncio.Task[None] | None = None
        self._process = os.getpid()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    @property
    def is_running(self) -> bool:
        """Whether calls are possible; False in a forked process, which has no such thread."""
        return not self._closed and self.thread.is_alive()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in the loop, from any other thread; its result, or its error."""
        if not self.is_running or threading.get_ident() == self.thread.ident:
            work.close()
            if self.is_running:
                raise BadArgument(f"{self.thread.name} waits for the thread that it is called in: use the async client")
            raise ClientClosed(self.thread.name)
        call = _Call(work)
        self._calls.append(call)
        if self._closed:  # perhaps too late to be seen; else the thread has yet to give up what waits
            with contextlib.suppress(ValueError):
                self._calls.remove(call)
                call.give_up(ClientClosed(self.thread.name))
                work.close()
        elif not self._woken:  # else the loop has yet to look, and finds this call too
            self._woken = True
            with contextlib.suppress(RuntimeError):  # it has ended, and with it the call
                self._loop.call_soon_threadsafe(self._begin)
        call.done.acquire()
        if call.error is not None:
            try:
                if self._closed and isinstance(call.error, asyncio.CancelledError):
                    raise ClientClosed(self.thread.name) from None
                raise call.error
            finally:
                del call  # the error's traceback has this frame, and would keep itself alive
        return call.result  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread; calls under way are cancelled, and raise ClientClosed."""
        if os.getpid() != self._process:
            return  # the loop's selector belongs to the process that made it
        self._closed = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
        self.thread.join()
        self._loop.close()

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._closed = True
            closed = ClientClosed(self.thread.name)
            for call in self._running.values():
                call.give_up(closed)
            with contextlib.suppress(IndexError):
                while True:
                    call = self._calls.popleft()
                    call.work.close()
                    call.give_up(closed)

    def _begin(self) -> None:
        self._woken = False
        with contextlib.suppress(IndexError):
            while not self._closed:
                call = self._calls.popleft()
                task = self._loop.create_task(call.run())
                self._running[task] = call
                task.add_done_callback(self._running.pop)

    def _end(self) -> None:
        self._ending = self._loop.create_task(self._cancel_calls())

    async def _cancel_calls(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=_END_SECONDS_MAX)
        self._loop.stop()
