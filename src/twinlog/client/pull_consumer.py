"""Reads queues when the caller asks: pull, seek, poll, commit."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from twinlog.base.clock import wall_clock_ms
from twinlog.client.base_client import BaseClient
from twinlog.client.consuming.pulling import TAG, PullResult, PullStatus, subscription_of
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import BadArgument, ClientError
from twinlog.client.name_rules import check_group
from twinlog.client.options import ClientOptions
from twinlog.client.routing.session import Session
from twinlog.client.tasks import TaskSet
from twinlog.wire.bodies import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData
from twinlog.wire.message import Message


class PullConsumer(BaseClient):
    """Reads queues by offset.

        async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
            for queue in await consumer.queues("Orders"):
                result = await consumer.pull(queue, await consumer.min_offset(queue))

    `assign`, `poll` and `commit` keep positions for you. With `register=False` brokers do not
    list the reader as a member of its group.
    """

    def __init__(
        self, name_servers: str, group: str, *, options: ClientOptions | None = None, register: bool = True
    ) -> None:
        check_group(group)
        self.group = group
        self.session = Session(name_servers, options, heartbeat=self._heartbeat if register else None)
        self._calls = QueueCalls(self.session)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._selected: dict[str, tuple[str, str]] = {}
        self._positions: dict[MessageQueue, int] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[PullResult]] = {}
        self._tasks = TaskSet()
        self._registered = register

    async def close(self) -> None:
        await self._tasks.close()
        self._pulls.clear()
        if self._registered:
            await self.session.unregister(consumer_group=self.group)
        await super().close()

    # -- queues and offsets --------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be read."""
        self._subscribe(topic, "*", TAG)
        return (await self.session.route(topic)).readable

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await self._calls.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._calls.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after the time; with `upper` the last one at or before it."""
        return await self._calls.offset_at(queue, timestamp_ms, upper=upper)

    async def earliest_time_ms(self, queue: MessageQueue) -> int:
        """When the oldest message was stored; -1 if there is none."""
        return await self._calls.earliest_time_ms(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed in `queue`; None if it never committed there."""
        return await self._calls.committed(self.group, queue)

    async def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """Commit `offset`, else the position of `queue`, else all positions."""
        if queue is not None:
            target = self.position(queue) if offset is None else offset
            await self._calls.commit(self.group, queue, target)
            return
        for each, position in list(self._positions.items()):
            await self._calls.commit(self.group, each, position)

    # -- reading -------------------------------------------------------------------------------

    def select(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Let polls of `topic` return only messages that match tags (`a || b`) or an SQL92 expression."""
        self._selected[topic] = (expression, expression_type)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = 32,
        wait_ms: int = 0,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> PullResult:
        """One request: messages of `queue` from `offset` on; with `wait_ms` the broker waits for new ones."""
        subscription = self._subscribe(queue.topic, expression, expression_type)
        return await self._calls.pull(self.group, queue, offset, subscription, count_max=count_max, wait_ms=wait_ms)

    async def messages(
        self, queue: MessageQueue, start: int, end: int, *, expression: str = "*", expression_type: str = TAG
    ) -> AsyncIterator[Message]:
        """The matching messages of `queue` with offsets in [start, end); ClientError if some are gone."""
        offset = start
        while offset < end:
            result = await self.pull(queue, offset, expression=expression, expression_type=expression_type)
            if result.status is PullStatus.OFFSET_MOVED or result.next_offset <= offset:
                place = f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name}"
                raise ClientError(
                    f"offset {offset} of {place} cannot be read: it holds {result.min_offset} to"
                    f" {result.max_offset}; start at {result.next_offset} to continue"
                )
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            offset = result.next_offset

    def assign(self, positions: dict[MessageQueue, int]) -> None:
        """Poll exactly these queues, from these offsets on."""
        for queue in list(self._pulls):
            self._drop_pull(queue)
        self._positions = dict(positions)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next poll of an assigned queue start at `offset`."""
        self.position(queue)
        self._drop_pull(queue)
        self._positions[queue] = offset

    def position(self, queue: MessageQueue) -> int:
        """The offset that the next poll of `queue` starts at."""
        if queue not in self._positions:
            raise BadArgument(f"queue {queue} is not assigned; call assign() first")
        return self._positions[queue]

    async def poll(self, timeout_ms: int = 1_000, *, count_max: int = 32) -> list[Message]:
        """The next messages of the assigned queues, as soon as there are some; an empty list after `timeout_ms`."""
        if not self._positions:
            raise BadArgument("no queue is assigned; call assign() with queues and offsets first")
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for queue, offset in self._positions.items():
                if queue not in self._pulls:
                    pull = self._pull_selected(queue, offset, count_max, max(timeout_ms, 1_000))
                    self._pulls[queue] = self._tasks.start(pull, f"pull {queue.topic}", awaited=True)
            left = max(0.0, deadline - time.monotonic())
            done, _ = await asyncio.wait(self._pulls.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            found = self._take(queue for queue, task in list(self._pulls.items()) if task in done)
            if found or not done:
                return found

    async def _pull_selected(self, queue: MessageQueue, offset: int, count_max: int, wait_ms: int) -> PullResult:
        expression, kind = self._selected.get(queue.topic, ("*", TAG))
        return await self.pull(
            queue, offset, count_max=count_max, wait_ms=wait_ms, expression=expression, expression_type=kind
        )

    def _take(self, queues: Iterable[MessageQueue]) -> list[Message]:
        """The messages of these finished pulls. A failure is raised only without messages, so that none is lost."""
        found: list[Message] = []
        failed: list[MessageQueue] = []
        for queue in queues:
            if self._pulls[queue].exception() is not None:
                failed.append(queue)
                continue
            result = self._pulls.pop(queue).result()
            self._positions[queue] = result.next_offset
            found += result.messages
        if failed and not found:
            errors = [self._pulls.pop(queue).exception() for queue in failed]
            raise errors[0] or AssertionError
        return found

    def _drop_pull(self, queue: MessageQueue) -> None:
        pull = self._pulls.pop(queue, None)
        if pull is not None:
            pull.cancel()

    def _subscribe(self, topic: str, expression: str, expression_type: str) -> SubscriptionData:
        known = self._subscriptions.get(topic)
        wanted = subscription_of(topic, expression, expression_type)
        if known is None or known.sub_string != wanted.sub_string:
            self._subscriptions[topic] = known = subscription_of(topic, expression, expression_type, wall_clock_ms())
        return known

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            subscription_data_set=list(self._subscriptions.values()),
        )
        return HeartbeatData(client_id=self.session.client_id, consumer_data_set=[data])
