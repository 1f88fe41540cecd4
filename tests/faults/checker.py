"""Judges a history: pure, so that every kind of broken promise is shown to be found by `test_checker.py`."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from tests.faults.history import History, Outcome, Read, Send


@dataclass
class Verdict:
    """All lists are empty when every promise was kept; the other numbers describe the run."""

    lost: list[Send] = field(default_factory=list)  # acknowledged and not there
    duplicated: list[tuple[int, int]] = field(default_factory=list)  # sent once, there more than once
    reordered: list[tuple[Read, Read]] = field(default_factory=list)  # acknowledged one after another, stored otherwise
    misplaced: list[tuple[Send, Read]] = field(default_factory=list)  # not at the place that the answer named
    acknowledged_twice: list[tuple[Send, Send]] = field(default_factory=list)  # one place promised to two messages
    stored_though_refused: list[Send] = field(default_factory=list)  # a definite error that was not true
    damaged: list[Read] = field(default_factory=list)  # the checksum is wrong
    invented: list[Read] = field(default_factory=list)  # nobody has sent it

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    unobserved: int = 0  # of the unknown ones, those that are not there
    recovery_s: list[float] = field(default_factory=list)  # after each fault: until a send that began later succeeded
    pause_s_max: float = 0.0  # the longest time without an acknowledgement

    @property
    def broken(self) -> dict[str, int]:
        """The promises that were broken, and how often."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {n: len(value) for n, value in found.items() if isinstance(value, list) and value and n != "recovery_s"}

    def __str__(self) -> str:
        text = f"{self.acknowledged} acknowledged, {self.refused} refused, {self.unknown} unknown"
        text += f" ({self.unobserved} not there), longest pause {self.pause_s_max:.1f} s"
        return text + (f"; BROKEN: {self.broken}" if self.broken else "")


def judge(history: History, reads: Sequence[Read]) -> Verdict:
    """What `reads`, all messages of the topic at the end, say about the promises of the history."""
    verdict = Verdict()
    sends = {send.key: send for send in history.sends}
    acknowledged = [send for send in history.sends if send.outcome is Outcome.ACKNOWLEDGED]
    verdict.acknowledged = len(acknowledged)
    verdict.refused, verdict.unknown = history.count(Outcome.REFUSED), history.count(Outcome.UNKNOWN)
    there: dict[tuple[int, int], Read] = {}
    for read in reads:
        if not read.is_whole:
            verdict.damaged.append(read)
        elif read.key not in sends:
            verdict.invented.append(read)
        elif sends[read.key].outcome is Outcome.REFUSED:
            verdict.stored_though_refused.append(sends[read.key])
        there.setdefault(read.key, read)
    counts = Counter(read.key for read in reads if read.is_whole)
    verdict.duplicated = [key for key, count in counts.items() if count > 1]
    verdict.lost = [send for send in acknowledged if send.key not in there]
    verdict.misplaced = _misplaced(acknowledged, reads)
    verdict.acknowledged_twice = _twice(acknowledged)
    verdict.reordered = _reordered(sends, reads)
    unknown = [send for send in history.sends if send.outcome is Outcome.UNKNOWN]
    verdict.unobserved = sum(1 for send in unknown if send.key not in there)
    verdict.recovery_s = recovery_times(history)
    verdict.pause_s_max = longest_pause(acknowledged)
    return verdict


def recovery_times(history: History) -> list[float]:
    """For each fault, the seconds until the answer to the first acknowledged send that began after it."""
    times = []
    for at, _ in history.faults:
        later = [s.ended for s in history.sends if s.began >= at and s.outcome is Outcome.ACKNOWLEDGED]
        times.append(min(later) - at if later else float("inf"))
    return times


def longest_pause(acknowledged: Sequence[Send]) -> float:
    times = sorted(send.ended for send in acknowledged)
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def _misplaced(acknowledged: Sequence[Send], reads: Sequence[Read]) -> list[tuple[Send, Read]]:
    places = defaultdict(list)
    for read in reads:
        places[read.key].append(read)
    return [
        (send, places[send.key][0])
        for send in acknowledged
        if send.key in places
        and all((read.queue, read.queue_offset) != (send.queue, send.queue_offset) for read in places[send.key])
    ]


def _twice(acknowledged: Sequence[Send]) -> list[tuple[Send, Send]]:
    first: dict[tuple[int, int], Send] = {}
    twice = []
    for send in acknowledged:
        other = first.setdefault((send.queue, send.queue_offset), send)
        if other is not send:
            twice.append((other, send))
    return twice


def _reordered(sends: dict[tuple[int, int], Send], reads: Sequence[Read]) -> list[tuple[Read, Read]]:
    """Acknowledged messages of one producer lie in one queue in the order in which they were sent.

    One without an answer may be stored after the next one: its request was perhaps still on its way.
    """
    last: dict[tuple[int, int], Read] = {}
    wrong, seen = [], set()
    for read in sorted(reads, key=lambda read: (read.queue, read.queue_offset)):
        send = sends.get(read.key)
        if send is None or send.outcome is not Outcome.ACKNOWLEDGED or read.key in seen:
            continue
        seen.add(read.key)
        before = last.get((read.producer, read.queue))
        if before is not None and before.sequence > read.sequence:
            wrong.append((before, read))
        last[read.producer, read.queue] = read
    return wrong
