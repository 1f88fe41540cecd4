"""Answers that wait until their record is safe, without I/O.

A send is answered when the log is flushed up to its record's end, replicated up to it, or both, whatever it
asked for; a wait that runs out of time is over too, and leaves its mark on the status.

Invariant: answers are added in the order of their ends, as one writer appends, so each wait is a queue
whose front is the next to be settled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinlog.store.log.append import PutStatus

A = TypeVar("A")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[A]):
    end: int
    answer: A
    status: PutStatus
    open_waits: int = 0


@dataclass(frozen=True, slots=True)
class Settled(Generic[A]):
    """An answer that waits no more, and what became of its record."""

    answer: A
    status: PutStatus


class _Line(Generic[A]):
    """One reason to wait: answers in the order of their ends, each with the moment its patience ends."""

    def __init__(self, late: PutStatus) -> None:
        self._late = late
        self._queue: deque[tuple[_Waiting[A], int]] = deque()

    def add(self, waiting: _Waiting[A], deadline_ms: int) -> None:
        assert not self._queue or self._queue[-1][0].end <= waiting.end, "answers wait in the order of the log"
        waiting.open_waits += 1
        self._queue.append((waiting, deadline_ms))

    def reached(self, end: int) -> list[Settled[A]]:
        settled = []
        while self._queue and self._queue[0][0].end <= end:
            settled += self._settle(late=False)
        return settled

    def expire(self, now_ms: int) -> list[Settled[A]]:
        settled = []
        while self._queue and self._queue[0][1] <= now_ms:
            settled += self._settle(late=True)
        return settled

    def first_overdue(self, now_ms: int) -> int | None:
        """The end that whoever is longest overdue waits for."""
        return self._queue[0][0].end if self._queue and self._queue[0][1] <= now_ms else None

    @property
    def deadline_ms(self) -> int | None:
        return self._queue[0][1] if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)

    def _settle(self, *, late: bool) -> list[Settled[A]]:
        waiting, _ = self._queue.popleft()
        waiting.open_waits -= 1
        # Java: when both waits fail, the replica's failure is the one that is told.
        if late and waiting.status in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT):
            waiting.status = self._late
        return [] if waiting.open_waits else [Settled(waiting.answer, waiting.status)]


class AckGate(Generic[A]):
    """Holds answers back until flush and replicas have reached them."""

    def __init__(self) -> None:
        self._flush: _Line[A] = _Line(PutStatus.FLUSH_DISK_TIMEOUT)
        self._replica: _Line[A] = _Line(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def add(
        self,
        end: int,
        answer: A,
        *,
        flush_deadline_ms: int | None = None,
        replica_deadline_ms: int | None = None,
        status: PutStatus = PutStatus.PUT_OK,
    ) -> None:
        """Hold `answer` for the waits that have a deadline, at least one; `status` is what it already suffered."""
        assert flush_deadline_ms is not None or replica_deadline_ms is not None, "nothing to wait for"
        waiting = _Waiting(end, answer, status)
        if flush_deadline_ms is not None:
            self._flush.add(waiting, flush_deadline_ms)
        if replica_deadline_ms is not None:
            self._replica.add(waiting, replica_deadline_ms)

    def flushed(self, end: int) -> list[Settled[A]]:
        """The log is durable before `end`."""
        return self._flush.reached(end)

    def replicated(self, end: int) -> list[Settled[A]]:
        """Enough replicas have the log before `end`."""
        return self._replica.reached(end)

    def expire(self, now_ms: int) -> list[Settled[A]]:
        """What has waited long enough."""
        return self._flush.expire(now_ms) + self._replica.expire(now_ms)

    def replica_missed(self, now_ms: int) -> int | None:
        """The first end that replicas should have reached by now; `expire` forgets it."""
        return self._replica.first_overdue(now_ms)

    @property
    def deadline_ms(self) -> int | None:
        """When `expire` next has something to do; None while nothing waits."""
        deadlines = [at for at in (self._flush.deadline_ms, self._replica.deadline_ms) if at is not None]
        return min(deadlines, default=None)

    @property
    def waits_for_flush(self) -> bool:
        return bool(self._flush)

    @property
    def waits_for_replicas(self) -> bool:
        return bool(self._replica)
