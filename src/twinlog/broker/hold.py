"""Pulls that found nothing and wait for a message: the table, without tasks or clocks.

A held pull leaves the table when a message that its filter accepts arrives, when its time is up, or when
its connection closes. Messages that the filter refuses do not wake it; a check every few seconds lets it
move past them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from twinlog.net.connection import Connection, Request
    from twinlog.store.dispatch import DispatchRequest

CHECK_INTERVAL_MS = 5_000
HOLDS_PER_CONNECTION_MAX = 32_768  # each takes about 2 KB; a consumer has one for every queue it reads
K = TypeVar("K")

Wakes = Callable[["DispatchRequest"], bool]


@dataclass(slots=True, eq=False)
class Hold:
    """One waiting pull."""

    request: Request
    topic: str
    queue_id: int
    queue_offset: int
    deadline_ms: int
    checked_ms: int
    wakes: Wakes | None = None  # None: any message does


class HoldTable:
    """Held pulls by topic and queue."""

    def __init__(self) -> None:
        self._holds: dict[Hold, None] = {}  # dictionaries as ordered sets: who waits longest is served first
        self._queues: dict[tuple[str, int], dict[Hold, None]] = {}
        self._connections: dict[Connection, dict[Hold, None]] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        return iter(list(self._holds))

    def has_room(self, connection: Connection) -> bool:
        """Whether one more pull of this peer may wait."""
        return len(self._connections.get(connection, ())) < HOLDS_PER_CONNECTION_MAX

    def hold(self, hold: Hold) -> None:
        self._holds[hold] = None
        self._queues.setdefault((hold.topic, hold.queue_id), {})[hold] = None
        self._connections.setdefault(hold.request.connection, {})[hold] = None

    def arrived(self, batch: Iterable[DispatchRequest]) -> list[Hold]:
        """Take out the pulls that one of these messages satisfies."""
        if not self._queues:
            return []
        woken: list[Hold] = []
        queues = self._queues
        for message in batch:
            holds = queues.get((message.topic, message.queue_id))
            if holds is None:
                continue
            end = message.queue_offset + message.batch_size
            for hold in list(holds):
                if end > hold.queue_offset and (hold.wakes is None or hold.wakes(message)):
                    self._remove(hold)
                    woken.append(hold)
            if not queues:
                break
        return woken

    def due(self, now_ms: int, max_offset: Callable[[str, int], int]) -> list[Hold]:
        """Take out the pulls whose time is up, and those that messages they do not want have passed."""
        taken = []
        for hold in self:
            if hold.deadline_ms <= now_ms:
                taken.append(hold)
            elif now_ms - hold.checked_ms >= CHECK_INTERVAL_MS:
                hold.checked_ms = now_ms
                if max_offset(hold.topic, hold.queue_id) > hold.queue_offset:
                    taken.append(hold)
        for hold in taken:
            self._remove(hold)
        return taken

    def drop(self, connection: Connection) -> int:
        """Forget the pulls of a closed connection; returns how many."""
        gone = list(self._connections.get(connection, ()))
        for hold in gone:
            self._remove(hold)
        return len(gone)

    def take_topic(self, topic: str) -> list[Hold]:
        """Take out every pull of a topic that was deleted."""
        taken = [hold for hold in self if hold.topic == topic]
        for hold in taken:
            self._remove(hold)
        return taken

    def _remove(self, hold: Hold) -> None:
        del self._holds[hold]
        _discard(self._queues, (hold.topic, hold.queue_id), hold)
        _discard(self._connections, hold.request.connection, hold)


def _discard(table: dict[K, dict[Hold, None]], key: K, hold: Hold) -> None:
    holds = table[key]
    del holds[hold]
    if not holds:
        del table[key]
