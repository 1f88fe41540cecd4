"""A task behind the fence fails alone: logged once, counted, shown, and run again after a pause that grows."""

from __future__ import annotations

import asyncio
import logging

import pytest

from twinlog.telemetry.fence import PAUSE_S_MAX, Fence
from twinlog.telemetry.metrics import Metrics


class Stop(BaseException):
    """Ends a test's endless task."""


class Time:
    """A clock that moves only when somebody sleeps or works."""

    def __init__(self, pauses_max: int = 100) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._pauses_max = pauses_max

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        if len(self.pauses) >= self._pauses_max:
            raise Stop


def fence(time: Time) -> Fence:
    return Fence(lambda: int(time.now * 1000), ticks_s=lambda: time.now, sleep=time.sleep)


async def test_pauses_double_up_to_a_minute_and_start_small_again_after_a_long_good_run(caplog):
    time, lasted = Time(pauses_max=10), iter([0.0] * 8 + [PAUSE_S_MAX, 0.0])
    kept = fence(time)

    async def work() -> None:
        time.now += next(lasted)
        raise KeyError("odd")

    with pytest.raises(Stop):
        await kept.run("Follower", work)
    assert time.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]
    health = kept.tasks["Follower"]
    assert (health.failures, health.error, health.paused) == (10, "KeyError: 'odd'", False)
    assert health.failed_ms > 0 and kept.failing() == {"Follower": health}
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1 and errors[0].exc_info is not None, "logged once, with its traceback"
    assert "task=Follower" in errors[0].getMessage() and "again_in_s=1.0" in errors[0].getMessage()


async def test_an_error_that_is_fatal_ends_the_task():
    async def work() -> None:
        raise KeyError("a hole")

    with pytest.raises(KeyError, match="a hole"):
        await fence(Time()).run("Follower", work, raises=(KeyError,))


async def test_another_error_is_logged_too(caplog):
    time, raised = Time(pauses_max=4), iter([KeyError("a"), KeyError("b"), ValueError("c"), ValueError("d")])

    async def work() -> None:
        raise next(raised)

    with pytest.raises(Stop):
        await fence(time).run("Follower", work)
    assert [record.getMessage().count("KeyError") for record in caplog.records] == [1, 0]


async def test_cancelling_ends_a_task_at_work_and_in_its_pause():
    kept, failing = Fence(), asyncio.Event()

    async def work() -> None:
        failing.set()
        raise RuntimeError

    for name, task_work in (("a", work), ("b", asyncio.Event().wait)):
        task = asyncio.create_task(kept.run(name, task_work))
        await (failing.wait() if name == "a" else asyncio.sleep(0))
        await asyncio.sleep(0)
        assert kept.tasks[name].paused is (name == "a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not kept.tasks[name].paused


async def test_a_task_that_ends_well_is_not_run_again():
    kept, runs = Fence(), []

    async def work() -> None:
        runs.append(1)

    await kept.run("once", work)
    assert runs == [1] and kept.failing() == {}


async def test_one_attempt_goes_no_further_except_for_errors_that_shall():
    kept = Fence()

    async def work(error: Exception) -> None:
        raise error

    await kept.attempt("Start", lambda: work(KeyError("x")), raises=(ValueError,))
    assert kept.tasks["Start"].failures == 1
    with pytest.raises(ValueError):
        await kept.attempt("Start", lambda: work(ValueError("shall end")), raises=(ValueError,))
    assert kept.tasks["Start"].failures == 1


async def test_failures_are_metrics():
    kept, metrics = Fence(), Metrics()
    kept.watch(metrics, "twinlog_broker")

    async def work() -> None:
        raise KeyError("x" * 5000)

    await kept.attempt("Start", work)
    assert 'twinlog_broker_task_failures_total{task="Start"} 1.0' in metrics.exposition().decode()
    assert len(kept.tasks["Start"].error) == 300
