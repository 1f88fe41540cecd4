"""Wakes held pulls when messages arrive, and when their time is up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.hold import Hold
    from twinlog.broker.pull import PullHandler
    from twinlog.store.dispatch import DispatchRequest

TICK_S = 0.5  # how late a timeout may be answered; Java looks every 5 s
ANSWERS_PER_TURN = 64  # each reads from the store and takes some 50 microseconds
LOOKS_PER_TURN = 2_000


class HoldService:
    """Owns the moment at which a held pull is answered: a few of them in each turn of the loop."""

    def __init__(self, ctx: BrokerContext, pulls: PullHandler) -> None:
        self._ctx = ctx
        self._pulls = pulls
        self._ended: deque[Hold] = deque()  # their time is up, or their topic is gone
        self._scheduled = False
        ctx.store.on_arrival.append(self._arrived)
        ctx.topic_listeners.append(self._topics_changed)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._end(self._ctx.holds.due(self._ctx.clock_ms(), self._ctx.store.max_offset))

    def _arrived(self, batch: Sequence[DispatchRequest]) -> None:
        if self._ctx.holds.arrived(batch):
            self._soon()

    def _topics_changed(self, names: tuple[str, ...]) -> None:
        """Pulls of a topic that is gone are told so."""
        for name in names:
            if name not in self._ctx.topics:
                self._end(self._ctx.holds.take_topic(name))

    def _end(self, holds: list[Hold]) -> None:
        self._ended += holds
        if holds:
            self._soon()

    def _soon(self) -> None:
        if not self._scheduled:
            # After this turn of the loop: the producer's answers leave first, and later batches share the pull.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        holds = self._ctx.holds
        woken = holds.take_woken(ANSWERS_PER_TURN, LOOKS_PER_TURN)
        while self._ended and len(woken) < ANSWERS_PER_TURN:
            woken.append(self._ended.popleft())
        for hold in woken:
            if not hold.request.connection.closed:
                self._pulls.finish(hold)
        if self._ended or holds.has_arrivals:
            self._soon()
