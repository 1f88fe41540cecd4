"""Pulls that found nothing and wait for a message: the table, without tasks or clocks.

A held pull leaves the table when a message that its filter accepts arrives, when its time is up, or when its
connection closes. Messages that the filter refuses do not wake it; a check every few seconds moves it past them.

Thousands of pulls may wait for one queue. A send only notes what arrived (`arrived`). `take_woken` compares arrivals
with pulls in slices of limited cost: one round compares a list of messages with all pulls of a queue, and messages that
arrive meanwhile are in the queue's next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from twinlog.store.log.batch_requests import BatchRequests

if TYPE_CHECKING:
    from twinlog.net.connection import Connection, Request
    from twinlog.store.dispatch import DispatchRequest

CHECK_INTERVAL_MS = 5_000
MESSAGES_PER_ROUND = 64  # that a filter sees; when more have arrived, the pull is woken and reads the queue
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
    filter_cost: int = 1  # of one call of `wakes`; comparing a tag costs 1
    since_ms: int = 0


@dataclass(slots=True)
class _Round:
    """Messages of one queue, and the pulls that have not been compared with them yet."""

    holds: Iterator[Hold]
    messages: list[DispatchRequest]

    def cost(self, hold: Hold) -> int:
        """What comparing the messages with this pull costs; a pull without a filter is woken without a comparison."""
        return 1 if hold.wakes is None else hold.filter_cost * min(len(self.messages), MESSAGES_PER_ROUND)

    def wakes(self, hold: Hold) -> bool:
        messages = self.messages
        last = messages[-1]
        if last.queue_offset + last.batch_size <= hold.queue_offset:
            return False
        if hold.wakes is None or len(messages) > MESSAGES_PER_ROUND:
            return True
        return any(one.queue_offset + one.batch_size > hold.queue_offset and hold.wakes(one) for one in messages)


class HoldTable:
    """Held pulls by topic and queue."""

    def __init__(self) -> None:
        self._holds: dict[Hold, None] = {}  # dictionaries as ordered sets: the pull that waits longest comes first
        self._queues: dict[tuple[str, int], dict[Hold, None]] = {}
        self._connections: dict[Connection, dict[Hold, None]] = {}
        self._arrivals: dict[tuple[str, int], list[DispatchRequest]] = {}  # not compared with any pull yet
        self._round: _Round | None = None

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        return iter(list(self._holds))

    def count_of(self, connection: Connection) -> int:
        """How many pulls of this peer wait."""
        return len(self._connections.get(connection, ()))

    def hold(self, hold: Hold) -> None:
        self._holds[hold] = None
        self._queues.setdefault((hold.topic, hold.queue_id), {})[hold] = None
        self._connections.setdefault(hold.request.connection, {})[hold] = None

    def arrived(self, batch: Iterable[DispatchRequest]) -> bool:
        """Note messages that pulls may wait for; whether `take_woken` has something to do."""
        queues, arrivals = self._queues, self._arrivals
        if type(batch) is BatchRequests and (batch.topic, batch.queue_id) not in queues:
            return self.has_arrivals  # without making its requests
        if queues:
            for message in batch:
                key = (message.topic, message.queue_id)
                if key not in queues:
                    continue
                messages = arrivals.get(key)
                if messages is None:
                    arrivals[key] = [message]
                elif len(messages) <= MESSAGES_PER_ROUND:
                    messages.append(message)
                else:
                    messages[-1] = message
        return self.has_arrivals

    @property
    def has_arrivals(self) -> bool:
        return self._round is not None or bool(self._arrivals)

    def take_woken(self, woken_max: int, cost_max: int) -> list[Hold]:
        """Take out pulls that the arrived messages satisfy: at most `woken_max`, at a cost near `cost_max`."""
        woken: list[Hold] = []
        while len(woken) < woken_max and cost_max > 0:
            if self._round is None and not self._begin_round():
                break
            cost_max -= self._continue_round(woken, woken_max, cost_max)
        return woken

    def _begin_round(self) -> bool:
        while self._arrivals:
            key = next(iter(self._arrivals))
            messages, holds = self._arrivals.pop(key), self._queues.get(key)
            if holds:
                self._round = _Round(iter(list(holds)), messages)
                return True
        return False

    def _continue_round(self, woken: list[Hold], woken_max: int, cost_max: int) -> int:
        """Compare further pulls with the round's messages; returns the cost."""
        cost, current = 0, self._round
        assert current is not None
        while cost < cost_max and len(woken) < woken_max:
            hold = next(current.holds, None)
            if hold is None:
                self._round = None
                break
            if hold not in self._holds:
                cost += 1
                continue
            cost += current.cost(hold)
            if current.wakes(hold):
                self._remove(hold)
                woken.append(hold)
        return cost

    def due(self, now_ms: int, max_offset: Callable[[str, int], int]) -> list[Hold]:
        """Take out the pulls whose time is up, and those whose queue has grown by messages that they do not want."""
        taken: list[Hold] = []
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
        """Remove the pulls of a closed connection; returns how many."""
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

    def take_of_largest(self) -> Hold | None:
        """Take out the longest waiting pull of the peer with the most pulls."""
        if not self._connections:
            return None
        hold = next(iter(max(self._connections.values(), key=len)))
        self._remove(hold)
        return hold

    def _remove(self, hold: Hold) -> None:
        del self._holds[hold]
        _discard(self._queues, (hold.topic, hold.queue_id), hold)
        _discard(self._connections, hold.request.connection, hold)


def _discard(table: dict[K, dict[Hold, None]], key: K, hold: Hold) -> None:
    holds = table[key]
    del holds[hold]
    if not holds:
        del table[key]
