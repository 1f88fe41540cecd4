"""Reads the statistics once a second, and notes the totals at midnight."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import BrokerStats

_TICK_S = 1.0


class StatsService:
    """Has `BrokerStats` take its readings every second and `new_day` at midnight."""

    def __init__(self, ctx: BrokerContext, stats: BrokerStats) -> None:
        self._ctx = ctx
        self._stats = stats
        ctx.topic_listeners.append(self._topics_changed)

    def _topics_changed(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self._ctx.topics:
                self._stats.forget_topic(name)

    async def run(self) -> None:
        day = local_day(self._ctx.wall_ms())
        while True:
            await asyncio.sleep(_TICK_S)
            now_ms = self._ctx.clock_ms()
            for _ in self._stats.tick_in_steps(now_ms):
                await asyncio.sleep(0)
            if local_day(self._ctx.wall_ms()) != day:
                day = local_day(self._ctx.wall_ms())
                self._stats.new_day(now_ms)


def local_day(now_ms: int) -> tuple[int, int]:
    """Year and day of the year where the broker runs."""
    now = time.localtime(now_ms / 1000)
    return now.tm_year, now.tm_yday
