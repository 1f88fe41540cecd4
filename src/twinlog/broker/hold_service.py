"""Wakes held pulls when messages arrive, and when their time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.hold import Hold
    from twinlog.broker.pull import PullHandler
    from twinlog.store.dispatch import DispatchRequest

TICK_S = 0.5  # how late a timeout may be answered; Java looks every 5 s


class HoldService:
    """Owns the moment at which a held pull is answered."""

    def __init__(self, ctx: BrokerContext, pulls: PullHandler) -> None:
        self._ctx = ctx
        self._pulls = pulls
        self._woken: list[Hold] = []
        ctx.store.on_arrival.append(self._arrived)
        ctx.topic_listeners.append(self._topics_changed)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for hold in self._ctx.holds.due(self._ctx.clock_ms(), self._ctx.store.max_offset):
                self._pulls.finish(hold)

    def _arrived(self, batch: Sequence[DispatchRequest]) -> None:
        self._finish_soon(self._ctx.holds.arrived(batch))

    def _topics_changed(self, names: tuple[str, ...]) -> None:
        """Pulls of a topic that is gone are told so."""
        for name in names:
            if name not in self._ctx.topics:
                self._finish_soon(self._ctx.holds.take_topic(name))

    def _finish_soon(self, woken: list[Hold]) -> None:
        if woken and not self._woken:
            # After this turn of the loop: the producer's answers leave first, and later batches share the pull.
            asyncio.get_running_loop().call_soon(self._finish)
        self._woken += woken

    def _finish(self) -> None:
        woken, self._woken = self._woken, []
        for hold in woken:
            self._pulls.finish(hold)
