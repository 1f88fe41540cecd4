"""How long sends take until they are answered: a histogram of the last two minutes, and the longest of all.

The fast path counts a whole chunk with one call, as its messages are stored and answered together.
"""

from __future__ import annotations

from bisect import bisect_right

# Java's buckets end at these milliseconds; below and between them are steps of our own, for the percentiles.
_JAVA_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_BOUNDS_MS = sorted({0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2, 5, 20, *_JAVA_MS})
_BOUNDS_S = [bound / 1000 for bound in _BOUNDS_MS]
_NAMES = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s",
    "5~10s", "10s~",
)  # fmt: skip
WINDOW_MS = 60_000


class Latencies:
    """Counts by duration, over the current window and the one before it."""

    __slots__ = ("_counts", "_previous", "_window_began_ms", "longest_s")

    def __init__(self, now_ms: int) -> None:
        self.longest_s = 0.0
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._previous = self._counts[:]
        self._window_began_ms = now_ms

    def took(self, seconds: float, count: int = 1) -> None:
        """Count `count` messages, each with this duration."""
        self._counts[bisect_right(_BOUNDS_S, seconds)] += count
        if seconds > self.longest_s:
            self.longest_s = seconds

    def tick(self, now_ms: int) -> None:
        if now_ms - self._window_began_ms >= WINDOW_MS:
            self._window_began_ms = now_ms
            self._previous, self._counts = self._counts, [0] * len(self._counts)

    def percentile_ms(self, part: float) -> float:
        """The time within which this part of the messages was answered, rounded up to a step; 0 without messages."""
        counts = self._recent()
        left = sum(counts) * part
        for count, bound_ms in zip(counts, [*_BOUNDS_MS, self.longest_s * 1000], strict=True):
            left -= count
            if count and left <= 0:
                return min(bound_ms, self.longest_s * 1000)
        return 0.0

    def by_java_s_buckets(self) -> str:
        """`[<=0ms]:9 [0~10ms]:1 ...`, as mqadmin shows it."""
        sums = dict.fromkeys(_NAMES, 0)
        for count, below_ms in zip(self._recent(), [0, *_BOUNDS_MS], strict=True):
            sums[_NAMES[bisect_right(_JAVA_MS, below_ms)]] += count
        return "".join(f"[{name}]:{count} " for name, count in sums.items())

    def _recent(self) -> list[int]:
        return [now + before for now, before in zip(self._counts, self._previous, strict=True)]
