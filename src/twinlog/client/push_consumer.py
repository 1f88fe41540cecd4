"""Passes every message of its topics to a listener, and shares the queues with the other members of its group."""

from twinlog.client.consuming.concurrent_consumer import ConcurrentConsumer
from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listen, Listener, ListenToMany
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.group_consumer import GroupConsumer
from twinlog.client.options import ClientOptions
from twinlog.client.tracing import Tracer


class PushConsumer(GroupConsumer):
    """A member of a consumer group.

        async def handle(message): print(message.body)

        consumer = PushConsumer("127.0.0.1:9876", "billing", handle)
        consumer.subscribe("Orders", "hot || cold")
        async with consumer:
            await asyncio.sleep(60)

    A listener that raises gets the message again later. Plain functions run in threads. With
    `ConsumerOptions.batch_count_max` the listener gets lists of messages.
    """

    consume_type = "CONSUME_PASSIVELY"

    def __init__(
        self,
        name_servers: str,
        group: str,
        listener: Listen | ListenToMany,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
    ) -> None:
        super().__init__(name_servers, group, options, consumer_options)
        settings = self.settings
        hooks = list(settings.hooks)
        self._tracer: Tracer | None = None
        if settings.enable_trace:
            self._tracer = Tracer(name_servers, group, "CONSUME", options, settings.trace_topic)
            hooks.append(self._tracer.consuming)
        self.listener = Listener(
            listener, settings.concurrency, many=settings.batch_count_max > 0, group=group, hooks=hooks
        )
        self._read_into(ConcurrentConsumer(group, QueueCalls(self.session), self.listener, settings))

    async def start(self) -> None:
        """Join the group, and begin to consume; `async with` does it too."""
        if self._tracer is not None:
            await self._tracer.start()
        try:
            await super().start()
        except BaseException:
            if self._tracer is not None:
                await self._tracer.close()
            raise

    async def close(self) -> None:
        """Leave the group: let running listener calls finish, commit, release the locks, unregister."""
        await super().close()
        assert self.listener is not None
        self.listener.close()
        if self._tracer is not None:
            await self._tracer.close()

    async def commit(self) -> None:
        """Save the progress of all queues now."""
        await self._assigned.commit()
