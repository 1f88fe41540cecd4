"""The loop stays awake for what comes soon, and only for that."""

import asyncio

import pytest

from twinlog.net.busy_wait import BusyWait


class Clock:
    """Goes on by a microsecond with each look at it."""

    now = 0.0

    def __call__(self):
        self.now += 1e-6
        return self.now


def waits(*seconds, limit=100e-6):
    """For each wait of so many seconds, whether the loop was awake when it began, and when it ended."""

    async def run():
        clock, seen = Clock(), []
        busy_wait = BusyWait(lambda: limit, clock)
        for wait in seconds:
            busy_wait.expect()
            began = busy_wait.is_awake
            clock.now += wait
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append((began, busy_wait.is_awake))
            busy_wait.arrived()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not busy_wait.is_awake, "what was expected is there"
        return seen

    return asyncio.run(run())


def test_after_a_short_wait_the_loop_stays_awake_for_the_next():
    assert waits(10e-6, 10e-6, 10e-6) == [(False, False), (True, True), (True, True)]


def test_it_gives_up_when_the_time_is_over_and_does_not_try_again_until_a_wait_was_short():
    assert waits(10e-6, 500e-6, 10e-6, 10e-6) == [(False, False), (True, False), (False, False), (True, True)]


def test_a_peer_that_is_far_away_costs_nothing():
    assert waits(300e-6, 300e-6, 300e-6) == [(False, False)] * 3


def test_a_limit_of_nothing_sleeps_at_once():
    assert waits(10e-6, 10e-6, limit=0) == [(False, False)] * 2


@pytest.mark.parametrize("times", [1, 3])
def test_one_poll_per_turn_is_enough_however_much_is_expected(times):
    async def looks():
        loop, busy_wait = asyncio.get_running_loop(), BusyWait(lambda: 60)
        busy_wait.expect()
        busy_wait.arrived()
        for _ in range(times):
            busy_wait.expect()
        return len(loop._ready)

    assert asyncio.run(looks()) == 1
