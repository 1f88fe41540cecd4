"""Queue locks of orderly consumers: one client per group and queue at a time, until a minute after its last renewal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.wire.bodies import MessageQueue

LOCK_MS_MAX = 60_000
ALL_KEY, GROUP_KEY = "maxLocks", "maxLocksPerGroup"


class LockLimits(NamedTuple):
    """How many queues may be locked. `refused` is called with the key of a limit and the queues that are not locked."""

    count_max: int
    per_group_max: int
    refused: Callable[[str, int], None]


def _ignore(key: str, queues: int) -> None: ...


NO_LIMITS = LockLimits(1 << 62, 1 << 62, _ignore)


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class LockTable:
    """Which client holds which queue. In memory only: after a restart consumers lock again."""

    def __init__(self, lock_ms_max: int = LOCK_MS_MAX) -> None:
        self._lock_ms_max = lock_ms_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        now_ms: int,
        limits: LockLimits = NO_LIMITS,
    ) -> list[MessageQueue]:
        """Lock or renew queues that are free, expired or the client's own; returns the queues it now holds.

        At the limit of locks a free queue is not given, as if another client held it: the client asks again.
        """
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        full: Counter[str] = Counter()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= limits.count_max or len(locks) >= limits.per_group_max:
                    full[ALL_KEY if self._count >= limits.count_max else GROUP_KEY] += 1
                    continue
                self._count += 1
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now_ms):
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        for key, count in full.items():
            limits.refused(key, count)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those of `queues` that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order now."""
        return any(not self._is_expired(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Remove locks that are not renewed, so that groups that left use no memory."""
        for group, locks in list(self._groups.items()):
            kept = {queue: lock for queue, lock in locks.items() if not self._is_expired(lock, now_ms)}
            if kept:
                self._groups[group] = kept
            else:
                del self._groups[group]
        self._count = sum(map(len, self._groups.values()))

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._lock_ms_max
