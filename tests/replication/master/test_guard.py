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


def test_with_a_lease_nothing_is_acknowledged_after_its_end():
    clock, went_on = Clock(), []
    guard = MasterGuard(clock)
    guard.lease(clock.now_ms + 3_000)
    clock.now_ms += 3_000
    assert guard.is_valid and guard.may_acknowledge
    clock.now_ms += 1
    assert not guard.is_valid and not guard.may_acknowledge
    guard.when_confirmed(lambda: went_on.append(1))
    guard.lease(clock.now_ms - 1)
    assert went_on == [], "a renewal that came too late proves nothing"
    guard.lease(clock.now_ms + 3_000)
    assert went_on == [1] and guard.is_valid


def test_a_pause_accepts_nothing_new_and_lets_answers_leave():
    clock = Clock()
    guard = MasterGuard(clock)
    guard.lease(clock.now_ms + 3_000)
    guard.pause("hands over")
    assert not guard.is_valid and guard.may_acknowledge and guard.paused_for == "hands over"
    guard.lease(clock.now_ms + 4_000)
    assert not guard.is_valid, "a renewal does not end the pause"
    guard.pause(None)
    assert guard.is_valid
    guard.lease(-1)
    guard.pause(None)
    assert not guard.is_valid and not guard.may_acknowledge


def test_a_replica_needs_no_lease():
    clock, went_on = Clock(), []
    guard = MasterGuard(clock)
    guard.lease(-1)
    guard.pause("hands over")
    guard.when_confirmed(lambda: went_on.append(1))
    guard.free()
    clock.now_ms += 1 << 40
    assert went_on == [1] and guard.is_valid and guard.paused_for is None
