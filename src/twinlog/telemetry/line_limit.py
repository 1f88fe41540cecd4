"""Which of very many equal log lines are written: the core, without a clock.

Every key may write some lines at once and then a few per second. Lines that are left out are counted, and a summary
follows some seconds after the first of them. There are three limits: of lines of one event about one peer (MANY), of
one event about all peers (ten times as many), and of lines that are the same in every field (SAME): of those one is
written, and then a count.
"""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, str]  # (event, host of the peer or "")


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many lines of one key are written."""

    at_once: int
    per_s: float
    summary_s: float  # when those that were left out are counted


def allow_per_second(lines: int) -> Allowance:
    return Allowance(at_once=10 * lines, per_s=float(lines), summary_s=10.0)


MANY = allow_per_second(10)
SAME = Allowance(at_once=1, per_s=1 / 30, summary_s=30.0)
KEYS_MAX = 4096  # the longest unused one is forgotten first


@dataclass(slots=True)
class _Bucket:
    lines: float
    at_s: float
    left_out: int = 0
    since_s: float = 0.0  # when the first of those was left out


class LineLimit:
    """A bucket of lines for each key."""

    def __init__(self, allowance: Allowance = MANY) -> None:
        self._allowance = allowance
        self.left_out = 0  # in all
        self._buckets: dict[Key, _Bucket] = {}  # the longest unused first
        self._owing: dict[Key, None] = {}  # keys with lines that no summary has counted yet

    def admit(self, key: Key, now_s: float) -> bool:
        """Whether one more line of `key` is written."""
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = _Bucket(self._allowance.at_once, now_s)
            if len(self._buckets) >= KEYS_MAX:
                oldest = next(iter(self._buckets))
                del self._buckets[oldest]
                self._owing.pop(oldest, None)
        self._buckets[key] = bucket
        allowed = self._allowance
        bucket.lines = min(allowed.at_once, bucket.lines + (now_s - bucket.at_s) * allowed.per_s)
        bucket.at_s = now_s
        if bucket.lines >= 1:
            bucket.lines -= 1
            return True
        if not bucket.left_out:
            bucket.since_s = now_s
            self._owing[key] = None
        bucket.left_out += 1
        self.left_out += 1
        return False

    def take_summaries(self, now_s: float) -> list[tuple[Key, int]]:
        """(key, lines left out) of those whose first one is long enough ago; each count is given once."""
        if not self._owing:
            return []
        due = [key for key in self._owing if now_s - self._buckets[key].since_s >= self._allowance.summary_s]
        found: list[tuple[Key, int]] = []
        for key in due:
            del self._owing[key]
            found.append((key, self._buckets[key].left_out))
            self._buckets[key].left_out = 0
        return found
