"""The loop stays awake for what comes soon, and only for that."""

import asyncio

import pytest

from twinlog.net import busy_wait
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
        waiting = BusyWait(lambda: limit, clock)
        for wait in seconds:
            waiting.expect()
            began = waiting.is_awake
            clock.now += wait
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append((began, waiting.is_awake))
            waiting.arrived()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not waiting.is_awake, "what was expected is there"
        return seen

    return asyncio.run(run())


def test_after_a_short_wait_the_loop_stays_awake_for_the_next():
    assert waits(10e-6, 10e-6, 10e-6) == [(False, False), (True, True), (True, True)]


def test_it_gives_up_when_the_time_is_over_and_does_not_try_again_until_a_wait_was_short():
    vain = (True, False)
    assert waits(10e-6, 500e-6, 10e-6) == [(False, False), vain, (False, False)]


def test_after_waits_in_vain_it_sleeps_longer_and_longer_before_it_tries_again():
    short, vain, busy, asleep = 10e-6, (True, False), (True, True), (False, False)
    once = [vain, asleep, asleep, asleep]  # one to see that waits are short again, and two
    twice = [vain, *[asleep] * 5]
    assert waits(short, 500e-6, *[short] * 3, 500e-6, *[short] * 6) == [asleep, *once, *twice, busy]


def test_a_busy_wait_that_paid_off_ends_the_longer_sleeps():
    short, vain, busy, asleep = 10e-6, (True, False), (True, True), (False, False)
    seen = waits(short, 500e-6, *[short] * 4, 500e-6, *[short] * 4)
    assert seen == [asleep, vain, *[asleep] * 3, busy, vain, *[asleep] * 3, busy]


def test_each_turn_offers_the_core_to_others(monkeypatch):
    offers = []
    monkeypatch.setattr(busy_wait, "yield_core", lambda: offers.append(1))
    waits(10e-6, 10e-6)
    assert offers


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
