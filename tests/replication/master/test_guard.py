"""The guard of a master: nothing is acknowledged after a pause, until it is known who is master."""

from twinlog.replication.master.guard import STALL_MS, MasterGuard


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_guard_that_never_ticked_is_valid():
    clock = Clock()
    guard = MasterGuard(clock)
    clock.now_ms += 100 * STALL_MS
    assert guard.is_valid


def test_a_pause_between_ticks_needs_a_confirmation():
    clock, went_on = Clock(), []
    guard = MasterGuard(clock)
    assert guard.tick()
    clock.now_ms += STALL_MS
    assert guard.is_valid and guard.tick()
    clock.now_ms += STALL_MS + 1
    assert not guard.is_valid
    assert not guard.tick() and not guard.is_valid, "a late tick does not make it valid"
    guard.when_confirmed(lambda: went_on.append(guard.is_valid))
    assert went_on == []
    guard.confirm()
    assert went_on == [True]
    assert guard.is_valid and guard.tick() and guard.stalls == 1
    guard.confirm()
    assert went_on == [True], "once"


def test_doubt_lasts_until_the_confirmation():
    clock = Clock()
    guard = MasterGuard(clock)
    guard.tick()
    guard.doubt()
    assert not guard.is_valid and not guard.tick()
    guard.confirm()
    assert guard.is_valid
