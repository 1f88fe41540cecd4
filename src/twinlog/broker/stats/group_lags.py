"""How far every group is behind in every topic, for the metrics: computed in small steps between other work.

A scrape must not walk over all queues at once, and the age of a message may be on disk. So a task computes the table
every few seconds, and a scrape shows the last one. A table that takes long, as with 100,000 groups, is computed less
often: the task uses at most a twentieth of the time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.base.system_names import DLQ_PREFIX
from twinlog.store.log.log_access import OnDisk

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext

INTERVAL_S = 5.0
QUEUES_PER_STEP = 64
PAUSE_FACTOR = 19


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group in one topic."""

    behind: int  # messages not consumed
    behind_ms: int  # age of the oldest of them
    in_flight: int  # pulled and not consumed
    ready: int  # not pulled
    ready_ms: int  # age of the oldest of them


class GroupLags:
    """The table of all groups; a service of the broker while metrics are served."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self.rows: dict[tuple[str, str], GroupLag] = {}  # topic, group

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await self.update()
            await asyncio.sleep(pause_s(time.perf_counter() - began))

    async def update(self) -> None:
        """Compute the table anew, a few queues in each turn of the loop."""
        found: dict[tuple[str, str], GroupLag] = {}
        left = QUEUES_PER_STEP
        for key, row in list(self._ctx.offsets.rows.items()):
            topic, _, group = key.partition("@")
            if topic not in self._ctx.topics or "@" in group or topic.startswith(DLQ_PREFIX):
                continue
            found[topic, group] = await self._lag(topic, group, dict(row))
            left -= len(row)
            if left <= 0:
                left = QUEUES_PER_STEP
                await asyncio.sleep(0)
        self.rows = found

    async def _lag(self, topic: str, group: str, offsets: dict[int, int]) -> GroupLag:
        ctx = self._ctx
        behind = in_flight = ready = 0
        ages: list[int] = []
        ready_ages: list[int] = []
        for queue_id, consumed in offsets.items():
            high = ctx.store.max_offset(topic, queue_id)
            pulled = max(ctx.offsets.pull_offset(group, topic, queue_id) or 0, consumed)
            behind += max(high - consumed, 0)
            in_flight += max(min(pulled, high) - consumed, 0)
            ready += max(high - pulled, 0)
            if consumed < high:
                ages.append(await self._age_ms(topic, queue_id, consumed))
            if pulled < high:
                ready_ages.append(await self._age_ms(topic, queue_id, pulled))
        return GroupLag(behind, max(ages, default=0), in_flight, ready, max(ready_ages, default=0))

    async def _age_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """A record that is on disk only is read by a thread."""
        store = self._ctx.store
        offset = max(offset, store.min_offset(topic, queue_id))
        try:
            stored_ms = store.store_time_of(topic, queue_id, offset, log=store.log_in_memory())
        except OnDisk:
            stored_ms = await asyncio.to_thread(store.store_time_of, topic, queue_id, offset, log=store.log_on_disk())
        return max(self._ctx.wall_ms() - stored_ms, 0) if stored_ms >= 0 else 0


def pause_s(took_s: float) -> float:
    """How long to wait after a table that took so long."""
    return max(INTERVAL_S, PAUSE_FACTOR * took_s)
