import asyncio

import pytest
from tests.virtual_time import VirtualLoop

from twinlog.net.errors import ConnectionLost
from twinlog.net.waiting_answers import WaitingAnswers
from twinlog.wire.command import Command


def run(work) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work(loop, WaitingAnswers(loop)))
    finally:
        loop.close()


def test_every_request_fails_at_its_own_deadline_whatever_the_order():
    async def work(loop, answers):
        ended = {}

        async def wait(opaque: int, timeout_ms: int) -> None:
            answer = answers.add(opaque, timeout_ms)
            with pytest.raises(TimeoutError):
                await answer
            ended[opaque] = round(loop.time() * 1000)

        await asyncio.gather(wait(1, 3000), wait(2, 30), wait(3, 15_000), wait(4, 31), wait(5, 30))
        assert ended == {1: 3000, 2: 30, 3: 15_000, 4: 31, 5: 30}
        assert not answers.futures

    run(work)


def test_an_answered_request_does_not_fail_and_the_next_one_has_a_timer_again():
    async def work(loop, answers):
        first = answers.add(1, 50)
        first.set_result(Command(0))
        answers.remove(1)
        assert (await first).code == 0
        await asyncio.sleep(0.2)  # its timer fires and finds nothing
        with pytest.raises(TimeoutError):
            await answers.add(2, 50)
        assert round(loop.time() * 1000) == 250

    run(work)


def test_a_short_timeout_is_not_kept_waiting_by_a_long_one():
    async def work(loop, answers):
        answers.add(1, 60_000)
        with pytest.raises(TimeoutError):
            await answers.add(2, 20)
        assert round(loop.time() * 1000) == 20

    run(work)


def test_thousands_of_deadlines_are_looked_at_in_few_sweeps():
    async def work(loop, answers):
        sweeps = 0
        sweep = answers._sweep

        def counted() -> None:
            nonlocal sweeps
            sweeps += 1
            sweep()

        answers._sweep = counted
        waiting = [answers.add(i, 100 + i / 100) for i in range(2000)]  # over 20 ms
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each.exception(), TimeoutError) for each in waiting)
        assert sweeps <= 22

    run(work)


def test_a_lost_connection_fails_all_and_leaves_no_timer():
    async def work(loop, answers):
        waiting = [answers.add(i, 1000) for i in range(3)]
        answers.fail_all(ConnectionLost("peer"))
        for each in waiting:
            with pytest.raises(ConnectionLost):
                await each
        assert not answers.futures and answers._timer is None

    run(work)
