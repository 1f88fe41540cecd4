"""A progress bar with rate and time left, on standard error, where that is a terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

MIB = 1024 * 1024
_BAR_LENGTH = 30
_REDRAW_S = 0.1


class ProgressBar:
    """From one byte to another; removed from the screen at the end. A pipe gets nothing."""

    def __init__(self, begin: int, end: int, out: TextIO | None = None) -> None:
        self._begin, self._end = begin, end
        self._out = out or sys.stderr
        self._shows = self._out.isatty()
        self._began = time.monotonic()
        self._drawn = 0.0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shows:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def reached(self, at: int) -> None:
        """Everything before `at` is done."""
        now = time.monotonic()
        if not self._shows or now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        self._out.write("\r\x1b[K" + bar_line(at - self._begin, self._end - self._begin, now - self._began))
        self._out.flush()


def bar_line(done: int, total: int, seconds: float) -> str:
    """`[####....] 50 %  12.5 MiB/s  8 s left`, in at most 80 columns."""
    total = max(total, 1)
    done = min(max(done, 0), total)
    rate = done / max(0.001, seconds)
    left = f"{(total - done) / rate:.0f} s left" if rate else "starting"
    bar = ("#" * (_BAR_LENGTH * done // total)).ljust(_BAR_LENGTH, ".")
    return f"[{bar}] {100 * done // total} %  {rate / MIB:.1f} MiB/s  {left}"
