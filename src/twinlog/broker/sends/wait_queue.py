"""Answers that wait until their record is safe, without I/O.

An answer waits for the flush of the log up to its record's end, for replicas that have the log up to there, or for
both. A wait that reaches its deadline ends too, and sets the answer's status.

Invariant: answers are added in the order of their records' ends, since one writer appends. So the first answer of each
queue is the next one to leave it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinlog.store.log.append import PutStatus

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Finished(Generic[A]):
    """An answer that waits no more, and the status it leaves with."""

    answer: A
    status: PutStatus


class WaitQueue(Generic[A]):
    """Holds answers until the flush and the replicas have reached their records."""

    def __init__(self) -> None:
        self._flush: _DeadlineQueue[A] = _DeadlineQueue(PutStatus.FLUSH_DISK_TIMEOUT)
        self._replica: _DeadlineQueue[A] = _DeadlineQueue(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def add(
        self,
        end: int,
        answer: A,
        *,
        flush_deadline_ms: int | None = None,
        replica_deadline_ms: int | None = None,
        status: PutStatus = PutStatus.PUT_OK,
    ) -> None:
        """Hold `answer` for the waits that have a deadline, at least one; `status` is its status so far."""
        assert flush_deadline_ms is not None or replica_deadline_ms is not None, "nothing to wait for"
        waiting = _Waiting(end, answer, status)
        if flush_deadline_ms is not None:
            self._flush.add(waiting, flush_deadline_ms)
        if replica_deadline_ms is not None:
            self._replica.add(waiting, replica_deadline_ms)

    def flushed(self, end: int) -> list[Finished[A]]:
        """The log is durable before `end`: the answers that leave now."""
        return self._flush.reached(end)

    def replicated(self, end: int) -> list[Finished[A]]:
        """Enough replicas have the log before `end`: the answers that leave now."""
        return self._replica.reached(end)

    def expire(self, now_ms: int) -> list[Finished[A]]:
        """The answers whose last wait has reached its deadline."""
        return self._flush.expire(now_ms) + self._replica.expire(now_ms)

    def replica_missed(self, now_ms: int) -> int | None:
        """The first end that replicas should have reached by now; ask before `expire` removes it."""
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


@dataclass(slots=True, eq=False)
class _Waiting(Generic[A]):
    end: int
    answer: A
    status: PutStatus
    open_waits: int = 0


class _DeadlineQueue(Generic[A]):
    """One reason to wait: answers in the order of their records' ends, each with its deadline."""

    def __init__(self, late: PutStatus) -> None:
        self._late = late
        self._queue: deque[tuple[_Waiting[A], int]] = deque()

    def add(self, waiting: _Waiting[A], deadline_ms: int) -> None:
        assert not self._queue or self._queue[-1][0].end <= waiting.end, "answers wait in the order of the log"
        waiting.open_waits += 1
        self._queue.append((waiting, deadline_ms))

    def reached(self, end: int) -> list[Finished[A]]:
        finished: list[Finished[A]] = []
        while self._queue and self._queue[0][0].end <= end:
            finished += self._take_first(late=False)
        return finished

    def expire(self, now_ms: int) -> list[Finished[A]]:
        finished: list[Finished[A]] = []
        while self._queue and self._queue[0][1] <= now_ms:
            finished += self._take_first(late=True)
        return finished

    def first_overdue(self, now_ms: int) -> int | None:
        """The record end that the longest overdue answer waits for."""
        return self._queue[0][0].end if self._queue and self._queue[0][1] <= now_ms else None

    @property
    def deadline_ms(self) -> int | None:
        return self._queue[0][1] if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)

    def _take_first(self, *, late: bool) -> list[Finished[A]]:
        """End the first answer's wait here; empty while the answer waits in the other queue too."""
        waiting, _ = self._queue.popleft()
        waiting.open_waits -= 1
        # Java: when both waits fail, the answer carries the replica's failure.
        if late and waiting.status in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT):
            waiting.status = self._late
        return [] if waiting.open_waits else [Finished(waiting.answer, waiting.status)]
