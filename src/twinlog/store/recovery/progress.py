"""How far a recovery is, as a log line every few seconds: a broker that reads 10 GiB must not look dead.

A recovery that takes less than that logs none of them. The core takes the time as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_S = 3.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """What is logged: the share, and what is left at the rate so far."""

    percent: int
    done_mib: int
    total_mib: int
    mib_per_second: int
    seconds_left: int


class RecoveryProgress:
    """Counts from one byte of the log to another."""

    def __init__(self, begin: int, end: int, now_s: float) -> None:
        self._begin, self._end = begin, max(begin, end)
        self._began_s = self._logged_s = now_s

    def reached(self, physical_offset: int, now_s: float) -> Line | None:
        """The next line, when the last one is LINE_S old."""
        if now_s - self._logged_s < LINE_S:
            return None
        self._logged_s = now_s
        total = self._end - self._begin
        done = min(max(physical_offset - self._begin, 0), total)
        rate = done / (now_s - self._began_s)
        left = round((total - done) / rate) if rate else 0
        percent = 100 * done // total if total else 100
        return Line(percent, done // MIB, total // MIB, round(rate / MIB), left)
