"""How many records lie between two bytes of the log, and how old they are, without reading it.

The dispatch of each batch adds a mark: end of the log, records so far, time of its first record. Marks are kept
some bytes or milliseconds apart, and that distance doubles when there are too many of them. So the memory is
bounded, and a short lag is computed more precisely than a long one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

_MARKS_MAX = 4096
_GAP_BYTES = 16 * 1024
_GAP_MS = 1000


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a replica is; `exact` is False when records were estimated from their mean size."""

    bytes: int
    messages: int
    milliseconds: int
    exact: bool = True


class LogMarks:
    """Invariant: ends and counts grow together; the last mark is the newest state."""

    def __init__(self, log_end: int, marks_max: int = _MARKS_MAX, gap_bytes: int = _GAP_BYTES) -> None:
        self._marks_max = marks_max
        self._gap_bytes = gap_bytes
        self._gap_ms = _GAP_MS
        self._restart(log_end)

    def dispatched(self, log_end: int, records: int, oldest_ms: int) -> None:
        """Add `records` records; the first was stored at `oldest_ms`, the last ends at `log_end`."""
        ends = self._ends
        if log_end <= ends[-1]:
            self._restart(log_end)  # the log was cut
            return
        count = self._counts[-1] + records
        small = len(ends) > 1 and log_end - ends[-2] < self._gap_bytes
        if small and oldest_ms - self._oldest_ms[-1] < self._gap_ms:
            ends[-1], self._counts[-1] = log_end, count
            return
        ends.append(log_end)
        self._counts.append(count)
        self._oldest_ms.append(oldest_ms)
        if len(ends) > self._marks_max:
            self._thin_out()

    def lag(self, at: int, now_ms: int) -> Lag:
        """What lies between `at` and the newest mark."""
        ends, counts = self._ends, self._counts
        behind = ends[-1] - at
        if behind <= 0:
            return Lag(0, 0, 0)
        if at < ends[0]:
            # Before the first mark (the start of this process) only the bytes are known.
            records = counts[-1] or 1
            mean = (ends[-1] - ends[0]) / records or behind
            oldest_ms = self._oldest_ms[1] if len(ends) > 1 else now_ms
            return Lag(behind, max(1, round(behind / mean)), max(0, now_ms - oldest_ms), exact=False)
        after = bisect_right(ends, at)  # the first mark beyond `at`
        share = (at - ends[after - 1]) / (ends[after] - ends[after - 1])
        there = counts[after - 1] + share * (counts[after] - counts[after - 1])
        return Lag(behind, max(1, round(counts[-1] - there)), max(0, now_ms - self._oldest_ms[after]))

    def _restart(self, log_end: int) -> None:
        self._ends, self._counts, self._oldest_ms = [log_end], [0], [0]  # before the first mark there is no interval

    def _thin_out(self) -> None:
        """Join intervals in pairs; the first and the last mark stay."""
        last = len(self._ends) - 1
        kept = [n for n in range(last + 1) if n % 2 == 0 or n == last]
        self._oldest_ms = [0, *(self._oldest_ms[before + 1] for before in kept[:-1])]
        self._ends = [self._ends[n] for n in kept]
        self._counts = [self._counts[n] for n in kept]
        self._gap_bytes *= 2
        self._gap_ms *= 2
