"""What the tests of Twinlog's own client share."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

from tests.interop import patient
from tests.interop.clusters import Cluster

from twinlog.client import ConsumerOptions, Message, PushConsumer, StartFrom

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


def registered(place: Cluster) -> Cluster:
    """`place` once its name server knows its broker; on a busy machine the first registration may time out."""
    deadline = time.monotonic() + 120
    with patient.WaitingAdmin(place.names.address) as admin:
        while not admin.cluster_info().cluster_addr_table:
            assert time.monotonic() < deadline, "the broker has not registered"
            time.sleep(0.2)
    return place


async def until(condition: Callable[[], object | Awaitable[object]], seconds_max: float = 90) -> None:
    """Return once the condition, which may be a coroutine, is true."""
    async with asyncio.timeout(seconds_max):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.05)


class Got:
    """What a consumer was given. Delivery is at least once: a wait asks for `>=`, and repetitions are for `set`."""

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
    made = patient.PushConsumer(names, group or f"G_{topic}", got, consumer_options=options)
    made.subscribe(topic)
    return made
