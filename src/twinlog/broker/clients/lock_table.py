"""Queue locks of orderly consumers: one client per group and queue at a time, until a minute after its last renewal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.wire.bodies import MessageQueue

LOCK_MS_MAX = 60_000
LOCKS_MAX = 1_000_000  # of all groups: about 200 MB
GROUP_LOCKS_MAX = 100_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class LockTable:
    """Which client holds which queue. In memory only: after a restart consumers lock again."""

    def __init__(
        self, lock_ms_max: int = LOCK_MS_MAX, locks_max: int = LOCKS_MAX, group_locks_max: int = GROUP_LOCKS_MAX
    ) -> None:
        self._lock_ms_max = lock_ms_max
        self._locks_max = locks_max
        self._group_locks_max = group_locks_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock or renew queues that are free, expired or the client's own; returns the queues it now holds.

        At the limit of locks a free queue is not given, as if another client held it: the client asks again.
        """
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= self._locks_max or len(locks) >= self._group_locks_max:
                    continue
                self._count += 1
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now_ms):
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
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
