from tests.broker.offline import Clock

from twinlog.base.clock import SteadyClock

HOUR_MS = 3_600_000


def test_the_steady_clock_starts_with_the_wall_clock_and_goes_on_without_it():
    wall, ticks = Clock(1_800_000_000_000), Clock(77)
    steady = SteadyClock(wall, lambda: ticks() * 1_000_000)
    assert steady() == 1_800_000_000_000
    wall.now_ms += HOUR_MS
    ticks.now_ms += 5
    assert (steady(), steady.wall_ahead_ms) == (1_800_000_000_005, HOUR_MS - 5)
    wall.now_ms -= 2 * HOUR_MS
    ticks.now_ms += 5
    assert (steady(), steady.wall_ahead_ms) == (1_800_000_000_010, -HOUR_MS - 10)


def test_the_real_ones_agree_within_a_second_and_the_steady_one_is_not_ahead():
    assert 0 <= SteadyClock().wall_ahead_ms < 1_000
