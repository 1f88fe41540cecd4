import asyncio
import threading

import pytest

from twinlog.client.loop_thread import LoopThread


@pytest.fixture
def loop():
    running = LoopThread("test")
    yield running
    running.stop()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def test_calls_from_many_threads_each_get_their_own_result(loop):
    results: dict[int, list[int]] = {}

    def caller(start: int) -> None:
        results[start] = [loop.call(double(start + i)) for i in range(200)]

    callers = [threading.Thread(target=caller, args=(start,)) for start in range(0, 4000, 1000)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert results == {start: [2 * (start + i) for i in range(200)] for start in range(0, 4000, 1000)}


def test_an_error_reaches_the_caller_and_the_loop_goes_on(loop):
    async def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        loop.call(fail())
    assert loop.call(double(2)) == 4


def test_a_call_that_waits_does_not_hold_up_others(loop):
    gate, entered = threading.Event(), threading.Event()

    async def wait() -> str:
        entered.set()
        await asyncio.to_thread(gate.wait, 20)
        return "late"

    late: list[str] = []
    caller = threading.Thread(target=lambda: late.append(loop.call(wait())))
    caller.start()
    assert entered.wait(20)
    assert loop.call(double(4)) == 8
    gate.set()
    caller.join()
    assert late == ["late"]


def test_a_cancelled_call_is_an_error_of_the_caller(loop):
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        loop.call(cancelled())
    assert loop.call(double(1)) == 2
