"""Background tasks of one object: all end with their owner, every error is logged, and lasting ones are restarted."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from twinlog.telemetry.fence import Fence
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


class TaskSet:
    """The running tasks of one object; `close` cancels them and waits for their end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.fence = Fence()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str, *, awaited: bool = False) -> asyncio.Task[Any]:
        """Run `work`. Its error is logged, unless the task is `awaited` and the caller gets it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if awaited else self._done)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Run `work` until it returns or the set is closed; after an unexpected error it is run again."""
        return self.start(self.fence.run(name, work), name)

    async def join(self) -> None:
        """Wait until all tasks have ended by themselves."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks and wait for them. A task that closes its own set is not cancelled."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a background task failed", task=task.get_name(), exc_info=task.exception())


def is_cancelled() -> bool:
    """Whether a CancelledError that was just raised is meant for this task, and not for something it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def wait_for_event(event: asyncio.Event, timeout_ms: float) -> bool:
    """Whether `event` was set within the time; it is cleared for the next round."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
