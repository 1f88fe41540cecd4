"""Tasks whose failure must not end their process.

A task that follows, registers, synchronises or counts handles the errors that it expects: one line, and a retry. Any
other error is a bug of ours, or an answer that we did not foresee. Here it is logged once with its traceback, counted
and kept for the status, and the task runs again after a growing pause, while everything else continues.

Tasks that hold acknowledged data (store, flush, acknowledgements) are not fenced: to continue could lose data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twinlog.base.clock import wall_clock_ms
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.telemetry.metrics import Metrics

log = get_logger(__name__)
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
_ERROR_LENGTH_MAX = 300  # the text may come from a peer


@dataclass(slots=True)
class TaskHealth:
    """The state of one fenced task."""

    failures: int = 0  # unexpected errors
    error: str = ""  # the last of them
    failed_ms: int = 0
    paused: bool = False  # it failed, and waits to be run again


class Fence:
    """Runs tasks again when they fail; `tasks` has the state of each."""

    def __init__(
        self,
        clock_ms: Callable[[], int] = wall_clock_ms,
        *,
        ticks_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock_ms = clock_ms
        self._ticks_s = ticks_s
        self._sleep = sleep
        self._logged: dict[str, tuple[type[BaseException], str, int]] = {}
        self.tasks: dict[str, TaskHealth] = {}

    async def run(
        self, name: str, work: Callable[[], Awaitable[None]], *, raises: tuple[type[Exception], ...] = ()
    ) -> None:
        """Run `work` until it returns or is cancelled; after an unexpected error, not one of `raises`, again."""
        health = self._health(name)
        pause_s = PAUSE_S_MIN
        while True:
            began_s = self._ticks_s()
            try:
                return await work()
            except raises:
                raise
            except Exception as error:
                if self._ticks_s() - began_s >= PAUSE_S_MAX:
                    pause_s = PAUSE_S_MIN  # it had recovered
                self._failed(name, error, pause_s)
            health.paused = True
            try:
                await self._sleep(pause_s)
            finally:
                health.paused = False
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def attempt(
        self, name: str, work: Callable[[], Awaitable[Any]], *, raises: tuple[type[Exception], ...] = ()
    ) -> None:
        """Run `work` once, on behalf of the task `name`; an unexpected error, not one of `raises`, is not raised."""
        try:
            await work()
        except raises:
            raise
        except Exception as error:
            self._failed(name, error, None)

    def failing(self) -> dict[str, TaskHealth]:
        """The tasks that ever failed unexpectedly."""
        return {name: health for name, health in self.tasks.items() if health.failures}

    def watch(self, metrics: Metrics, prefix: str) -> None:
        """Show failures and pauses, by task, in metrics that begin with `prefix`."""
        metrics.watch(
            f"{prefix}_task_failures",
            "Unexpected errors of tasks that are run again",
            lambda: {(name,): health.failures for name, health in self.tasks.items()},
            kind="counter",
            label_names=("task",),
        )
        metrics.watch(
            f"{prefix}_task_paused",
            "1 while a task that failed unexpectedly waits to be run again",
            lambda: {(name,): float(health.paused) for name, health in self.tasks.items()},
            label_names=("task",),
        )

    def _health(self, name: str) -> TaskHealth:
        return self.tasks.setdefault(name, TaskHealth())

    def _failed(self, name: str, error: Exception, pause_s: float | None) -> None:
        health = self._health(name)
        health.failures += 1
        health.error = error_text(error)
        health.failed_ms = self._clock_ms()
        place = (type(error), *_innermost(error.__traceback__))
        if self._logged.get(name) == place:
            return  # the same error again: it is counted, and in the status
        self._logged[name] = place
        log.error(
            "a task failed unexpectedly; all else goes on",
            task=name,
            error=health.error,
            **({} if pause_s is None else {"again_in_s": pause_s}),
            exc_info=error,
        )


def error_text(error: BaseException) -> str:
    """The error with its kind, in a line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_ERROR_LENGTH_MAX]


def _innermost(traceback: TracebackType | None) -> tuple[str, int]:
    """File and line that raised."""
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
