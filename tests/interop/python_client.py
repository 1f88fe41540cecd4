"""What the tests of Twinlog's own client share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.interop.clusters import Cluster

from twinlog.client import ConsumerOptions, Message, PushConsumer, StartFrom
from twinlog.client.sync import Admin as WaitingAdmin

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


def registered(place: Cluster) -> Cluster:
    """`place` once its name server knows its broker; on a busy machine the first registration may time out."""
    deadline = time.monotonic() + 90
    with WaitingAdmin(place.names.address) as admin:
        while not admin.cluster_info().cluster_addr_table:
            assert time.monotonic() < deadline, "the broker has not registered"
            time.sleep(0.2)
    return place


async def until(condition: Callable[[], object], seconds_max: float = 60) -> None:
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(0.05)


class Got:
    def __init__(self, judge: Callable[[Message], Awaitable[None]] | None = None) -> None:
        self.messages: list[Message] = []
        self._judge = judge

    async def __call__(self, message: Message) -> None:
        if self._judge is not None:
            await self._judge(message)
        self.messages.append(message)

    @property
    def bodies(self) -> list[str]:
        return sorted(message.body.decode() for message in self.messages)


def consumer(names: str, topic: str, got: Got, options: ConsumerOptions = FIRST, group: str = "") -> PushConsumer:
    made = PushConsumer(names, group or f"G_{topic}", got, consumer_options=options)
    made.subscribe(topic)
    return made
