import asyncio
import os
import threading
import time

import pytest

from twinlog.client.errors import BadArgument, ClientClosed
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


def test_calls_under_way_end_when_the_thread_stops(loop):
    errors = []

    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    def caller() -> None:
        try:
            loop.call(wait_for_ever())
        except BaseException as error:
            errors.append(error)

    callers = [threading.Thread(target=caller, daemon=True) for _ in range(3)]
    for each in callers:
        each.start()
    while len(loop._running) < 3:
        time.sleep(0.001)
    loop.stop()
    for each in callers:
        each.join(20)
    assert [type(error) for error in errors] == [ClientClosed] * 3


def test_a_call_after_the_end_raises(loop):
    loop.stop()
    with pytest.raises(ClientClosed, match="test is not running"):
        loop.call(double(1))


def test_a_call_from_the_loop_itself_raises_and_does_not_wait_for_ever(loop):
    async def inside() -> int:
        return loop.call(double(1))

    with pytest.raises(BadArgument, match="use the async client"):
        loop.call(inside())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_gets_an_error_and_leaves_the_loop_alone(loop):
    child = os.fork()
    if not child:
        status = 1
        try:
            loop.call(double(1))
        except ClientClosed:
            loop.stop()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert loop.call(double(3)) == 6
