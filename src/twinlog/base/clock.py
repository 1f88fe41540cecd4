"""Two clocks: the wall clock, which people read, and a steady one, by which everything waits.

The wall clock may be set: by an operator, by NTP at boot, by a virtual machine that resumes. A delay that is measured
with it then ends an hour early or an hour late. So delays, timers, transaction checks, holds, expiries and silences use
a SteadyClock: the wall clock at the start of the process plus the time that has passed since.

- The kernel slews the steady clock as it slews the wall clock, so over months they differ only by the steps in which
  the wall clock was set. Time in which the machine was suspended has passed on both.
- A wall clock that was wrong at the start and is set right later leaves the steady clock wrong. Delays are right
  nevertheless, absolute times (TIMER_DELIVER_MS) are off by the difference until a restart. The broker logs a warning.
- Records are stamped with the wall clock, as in Java: searches by time, retention and people use that one. Code that
  compares a stamp with the steady clock must know how far the stamp was ahead (`broker/deferred/stamp_skew.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Linux: CLOCK_MONOTONIC stands still while the machine is suspended, CLOCK_BOOTTIME does not.
_TICKS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


def wall_clock_ms() -> int:
    """The time of day, which may jump."""
    return time.time_ns() // _NS_PER_MS


def wall_clock_ns() -> int:
    """The same in nanoseconds, for identifiers that must differ."""
    return time.time_ns()


def ticks_ns() -> int:
    """Time that is never set, from an arbitrary start; it runs while the machine is suspended."""
    return time.clock_gettime_ns(_TICKS)


def ticks_ms() -> int:
    """The same in milliseconds."""
    return ticks_ns() // _NS_PER_MS


def monotonic_ms() -> int:
    """For deadlines and pauses: time that is never set, and that stands still while the machine is suspended."""
    return time.monotonic_ns() // _NS_PER_MS


class MovableClock:
    """Both clocks with an offset that only grows: `advance` lets time pass without waiting, for tests."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def wall_ms(self) -> int:
        return (time.time_ns() + self._ahead_ns) // _NS_PER_MS

    def ticks_ns(self) -> int:
        return ticks_ns() + self._ahead_ns

    def advance(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1_000_000_000)


class SteadyClock:
    """Milliseconds since the epoch, by the wall clock at the start, that never jump."""

    def __init__(self, wall_ms: Callable[[], int] = wall_clock_ms, ticks_ns: Callable[[], int] = ticks_ns) -> None:
        self._wall_ms, self._ticks_ns = wall_ms, ticks_ns
        # The wall clock first: the steady one may be a little behind it, and never ahead.
        self._start_ns = wall_ms() * _NS_PER_MS
        self._start_ns -= ticks_ns()

    def __call__(self) -> int:
        return (self._start_ns + self._ticks_ns()) // _NS_PER_MS

    @property
    def wall_ahead_ms(self) -> int:
        """How far the wall clock was set since the start; below 0 when it was set back."""
        return self._wall_ms() - self()
