"""Reads a share of its topics' queues when the caller asks: subscribe, poll, commit. Java: DefaultLitePullConsumer."""

import asyncio
from collections.abc import Iterable

from twinlog.client.consuming.assigned_queues import Moves, MovesListener
from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.polled_messages import PolledMessages
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.consuming.queue_worker import QueueWorker
from twinlog.client.errors import BadArgument, ClientClosed
from twinlog.client.group_consumer import GroupConsumer
from twinlog.client.options import ClientOptions
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message

_NOT_HERE = ("orderly", "batch_count_max", "hooks", "enable_trace")  # options that are about listeners


class PollConsumer(GroupConsumer):
    """A member of a consumer group that asks for its messages.

        consumer = PollConsumer("127.0.0.1:9876", "billing")
        consumer.subscribe("Orders")
        async with consumer:
            while True:
                for message in await consumer.poll():
                    ...

    With `auto_commit`, messages count as consumed when the next `poll` is called, and progress is saved every
    `ConsumerOptions.commit_ms`. Without it, `commit` saves what was polled. `on_release` is called before queues go to
    other members, which is the time for a commit; `on_take` before new ones are read, which is the time for a `seek`.
    Both may be coroutine functions.

    An error that ends the `async with` block leaves the messages of the last `poll` unconsumed: they come again.
    """

    consume_type = "CONSUME_ACTIVELY"
    has_retry_topic = False

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
        auto_commit: bool = True,
        on_take: MovesListener | None = None,
        on_release: MovesListener | None = None,
    ) -> None:
        super().__init__(name_servers, group, options, consumer_options)
        usual = ConsumerOptions()
        for name in _NOT_HERE:
            if getattr(self.settings, name) != getattr(usual, name):
                raise BadArgument(f"{name} is about listeners, which a PollConsumer has none of; use a PushConsumer")
        self._polled = PolledMessages()
        self._auto_commit = auto_commit
        self._calls = QueueCalls(self.session)
        self._read_into(self._polled, Moves(on_release, on_take))

    async def __aexit__(self, *exception: object) -> None:
        if exception and exception[0] is not None:
            self._polled.forget()
        await super().__aexit__(*exception)

    async def close(self) -> None:
        """Leave the group; with `auto_commit` everything that was polled is consumed."""
        if self._auto_commit:
            self._polled.settle()
        await super().close()

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """End `pause`; what was pulled before it comes first."""
        super().resume(queues)
        self._polled.wake()

    async def poll(self, timeout_ms: int = 5_000, *, count_max: int = 32) -> list[Message]:
        """The next messages, as soon as there are some; an empty list after `timeout_ms`."""
        if not self._running:
            raise ClientClosed("the consumer")
        if count_max < 1:
            raise BadArgument(f"count_max={count_max} is below 1")
        if self._auto_commit:
            self._polled.settle()
        found = self._polled.take(count_max)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not found:
                    await self._polled.wait()
                    found = self._polled.take(count_max)
        except TimeoutError:
            return []
        return found

    async def commit(self) -> None:
        """Save that everything polled so far is consumed."""
        self._polled.settle()
        for worker in self.workers.values():
            worker.accept_jump()
        await self._assigned.commit()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed in `queue`; None if it never committed there."""
        return await self._calls.committed(self.group, queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that `poll` may return of an assigned queue."""
        return self._polled.position(self._worker(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next poll of an assigned queue start at `offset`; what was pulled before is dropped.

        With `auto_commit` this is the group's progress from now on; without it, after the next `commit`.
        """
        self._worker(queue).jump(offset, is_progress=self._auto_commit)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Let the next poll of an assigned queue start with its oldest message."""
        self._worker(queue)
        self.seek(queue, await self._calls.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Let the next poll of an assigned queue start with the next message that is stored."""
        self._worker(queue)
        self.seek(queue, await self._calls.max_offset(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after the time; with `upper` the last one at or before it."""
        return await self._calls.offset_at(queue, timestamp_ms, upper=upper)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be read, whoever reads them."""
        return (await self.session.route(topic)).readable

    def _worker(self, queue: MessageQueue) -> QueueWorker:
        worker = self.workers.get(queue)
        if worker is None:
            raise BadArgument(f"queue {queue} is not one that this member reads; see assignment()")
        return worker
