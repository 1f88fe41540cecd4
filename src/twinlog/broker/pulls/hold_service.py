"""Wakes held pulls when messages arrive, and when their time is up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.pulls.hold import Hold
    from twinlog.broker.pulls.pull import PullHandler
    from twinlog.store.dispatch import DispatchRequest

log = get_logger(__name__)

TICK_S = 0.5  # how late a timeout may be answered; Java checks every 5 s
ANSWERS_PER_TURN = 64  # each reads from the store and takes about 50 microseconds
FILTER_COST_PER_TURN = 2_000  # comparing one message with a tag costs 1; a property filter costs more


class HoldService:
    """Decides when held pulls are answered: a limited number in each turn of the loop."""

    def __init__(self, ctx: BrokerContext, pulls: PullHandler) -> None:
        self._ctx = ctx
        self._pulls = pulls
        self._ended: deque[Hold] = deque()  # their time is up, or their topic was deleted
        self._scheduled = False
        ctx.store.on_arrival.append(self._arrived)
        ctx.topic_listeners.append(self._topics_changed)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._end(self._ctx.holds.due(self._ctx.clock_ms(), self._ctx.store.max_offset))

    def _arrived(self, batch: Sequence[DispatchRequest]) -> None:
        if self._ctx.holds.arrived(batch):
            self._schedule_turn()

    def _topics_changed(self, names: tuple[str, ...]) -> None:
        """Answer the pulls of a topic that was deleted."""
        for name in names:
            if name not in self._ctx.topics:
                self._end(self._ctx.holds.take_topic(name))

    def _end(self, holds: list[Hold]) -> None:
        self._ended += holds
        if holds:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            # In the next turn of the loop: the producer's answers leave first, and one pull reads several batches.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        holds = self._ctx.holds
        try:
            woken = holds.take_woken(ANSWERS_PER_TURN, FILTER_COST_PER_TURN)
            while self._ended and len(woken) < ANSWERS_PER_TURN:
                woken.append(self._ended.popleft())
            for hold in woken:
                if not hold.request.connection.closed:
                    self._finish(hold)
        finally:
            if self._ended or holds.has_arrivals:
                self._schedule_turn()

    def _finish(self, hold: Hold) -> None:
        try:
            self._pulls.finish(hold)
        except Exception as error:  # the answer cannot be sent; the other pulls are still answered
            log.error("a held pull cannot be answered", peer=hold.request.connection.peer_text, exc_info=error)
            hold.request.connection.close(error)
