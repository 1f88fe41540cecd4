"""How many queues a topic may have, and how work for each queue of a topic is bounded.

A request cannot create a topic with more than `maxTopicQueueNums`. Topics from a file or from a master are taken as
they are, since a replica's table equals its master's. So work for each of their queues has a limit of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.wire.bodies import TopicConfig

KEY = "maxTopicQueueNums"
PERMISSIONS = range(16)  # read, write, inherit, and 5.x's priority
QUEUES_PER_TURN = 1_000


def check_topic(ctx: BrokerContext, config: TopicConfig) -> None:
    """Refuse a configuration that no broker can serve."""
    for what, count in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        check_queues(ctx, f"topic {config.topic_name} with {count} {what} queues", count)
    if config.perm not in PERMISSIONS:
        remark = f"topic {config.topic_name} with perm {config.perm}: give a sum of 4 (read), 2 (write), 1 (inherit)"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)


def check_queues(ctx: BrokerContext, what: str, count: int) -> None:
    if count < 0:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{what}: give 0 or more")
    limit = ctx.settings.topic_queues_max
    if count > limit:
        raise ctx.limits.refuse(ResponseCode.INVALID_PARAMETER, what, KEY, limit, "ask for fewer, or raise it")


def is_walkable(count: int) -> bool:
    """Whether something may be computed for each of `count` queues."""
    return count <= TOPIC_QUEUES_MAX


def check_walk(topic: str, count: int) -> None:
    """Refuse to answer with a row for each queue of a topic that has too many."""
    if not is_walkable(count):
        remark = f"topic {topic} has {count} queues, and an answer has at most {TOPIC_QUEUES_MAX}: lower its queues"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)


class Turns:
    """Lets other tasks run after every QUEUES_PER_TURN queues."""

    def __init__(self) -> None:
        self._left = QUEUES_PER_TURN

    async def slices(self, count: int) -> AsyncIterator[range]:
        """The numbers below `count` in parts, each small enough for one turn of the loop."""
        for first in range(0, count, QUEUES_PER_TURN):
            part = range(first, min(first + QUEUES_PER_TURN, count))
            if len(part) > self._left:
                await asyncio.sleep(0)
                self._left = QUEUES_PER_TURN
            self._left -= len(part)
            yield part
