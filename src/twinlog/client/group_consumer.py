"""The base of consumers that share the queues of their topics with the other members of a group."""

import asyncio
from collections.abc import Iterable

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.base_client import BaseClient
from twinlog.client.consuming.assigned_queues import AssignedQueues, Moves
from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener
from twinlog.client.consuming.pulling import TAG, subscription_of
from twinlog.client.consuming.push_requests import PushRequests
from twinlog.client.consuming.queue_worker import QueueWorker, Sink
from twinlog.client.errors import BadArgument, BrokerRefused
from twinlog.client.name_rules import check_group
from twinlog.client.options import ClientOptions
from twinlog.client.routing.session import Session
from twinlog.client.tasks import TaskSet, wait_for_event
from twinlog.wire.bodies import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    MessageQueue,
    SubscriptionData,
    encode_body,
)
from twinlog.wire.codes import RequestCode, ResponseCode

_REBALANCE_MS = 20_000
_INCOMPLETE_MS = 1_000  # while a route is unknown or another member still holds a lock
# Refusals of a first heartbeat that waiting does not change, such as wrong credentials (4.x answers them with 1).
_HOPELESS_CODES = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)


class GroupConsumer(BaseClient):
    """A member of a consumer group, from `start` to `close`. Subclasses call `_read_into` with where messages go."""

    consume_type: str
    listener: Listener | None = None
    has_retry_topic = True  # what fails comes again through a topic of the group

    def __init__(
        self, name_servers: str, group: str, options: ClientOptions | None, consumer_options: ConsumerOptions | None
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = consumer_options or ConsumerOptions()
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.session = Session(
            name_servers,
            options,
            handlers=PushRequests(self).handlers(),
            heartbeat=self._heartbeat,
            on_route_change=self._route_changed,
        )
        self._assigned: AssignedQueues
        self._rebalance_wanted = asyncio.Event()
        self._tasks = TaskSet()
        self._running = False

    def _read_into(self, sink: Sink, moves: Moves | None = None) -> None:
        self._assigned = AssignedQueues(
            self.group, self.session, self.settings, self.subscriptions, sink, self.listener, moves
        )

    @property
    def workers(self) -> dict[MessageQueue, QueueWorker]:
        """The queues that this member reads now, each with its worker."""
        return self._assigned.workers

    @property
    def started_ms(self) -> int:
        return self._assigned.started_ms

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Receive messages of `topic` that match tags (`a || b`) or an SQL92 expression over properties."""
        self.subscriptions[topic] = subscription_of(topic, expression, expression_type, wall_clock_ms())
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of `topic` any more."""
        self.subscriptions.pop(topic, None)
        self._subscriptions_changed()

    async def start(self) -> None:
        """Join the group, and begin to read a share of the queues; `async with` does it too."""
        if not self.subscriptions:
            raise BadArgument(f"consumer group {self.group!r} has no subscription; call subscribe() before start()")
        self._assigned.started_ms = wall_clock_ms()
        if self.has_retry_topic and not self.settings.broadcasting:
            retry_topic = RETRY_PREFIX + self.group
            self.subscriptions.setdefault(retry_topic, subscription_of(retry_topic, "*", version=wall_clock_ms()))
        await super().start()
        try:
            await self._join()
        except BaseException:
            await self.session.close()
            raise
        self._running = True
        self._assigned.start()
        self._tasks.keep(self._rebalance_for_ever, "rebalance")
        self._tasks.keep(self._commit_for_ever, "commit offsets")
        if self.settings.needs_locks:
            self._tasks.keep(self._assigned.keep_locks, "renew locks")

    async def close(self) -> None:
        """Leave the group: let running listener calls finish, commit, release the locks, unregister."""
        self._running = False
        await self._tasks.close()
        await self._assigned.close()
        await self.session.unregister(consumer_group=self.group)
        await super().close()

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return sorted(self._assigned.workers)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Get no more messages of these queues; of all, also of those that come later, by default.

        The member stays in its group and keeps its queues.
        """
        self._assigned.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """End `pause`; what was pulled before it comes first."""
        self._assigned.resume(queues)

    def rebalance_soon(self) -> None:
        """Compare the member's share of the queues with what it reads, now and not in 20 s."""
        self._rebalance_wanted.set()

    # -- membership ----------------------------------------------------------------------------

    async def _join(self) -> None:
        """Become a member of the group at all brokers, and begin to read a share of the queues."""
        await self._find_routes()
        await self._check_expressions()
        for error in await self.session.send_heartbeats():
            if isinstance(error, BrokerRefused) and error.code in _HOPELESS_CODES:
                raise error
        await self._assigned.rebalance()

    async def _find_routes(self) -> None:
        """Heartbeats go to the brokers of known routes."""
        for topic in list(self.subscriptions):
            await self.session.find_route(topic)

    async def _check_expressions(self) -> None:
        """Let a broker refuse a wrong SQL92 expression now, with its reason; else messages would just not come."""
        for topic, subscription in self.subscriptions.items():
            route = self.session.known_route(topic)
            if subscription.expression_type == TAG or route is None:
                continue
            body = CheckClientBody(client_id=self.session.client_id, group=self.group, subscription_data=subscription)
            address = next(filter(None, map(route.address_of, route.brokers)), None)
            if address is not None:
                await self.session.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    def _subscriptions_changed(self) -> None:
        if self._running:
            self._tasks.start(self._report_subscriptions(), "report subscriptions")

    async def _report_subscriptions(self) -> None:
        await self._find_routes()
        for queue, worker in self.workers.items():
            worker.subscription = self.subscriptions.get(queue.topic, worker.subscription)
        await self.session.send_heartbeats()
        self.rebalance_soon()

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model="BROADCASTING" if self.settings.broadcasting else "CLUSTERING",
            consume_from_where=self.settings.start_from.value,
            subscription_data_set=list(self.subscriptions.values()),
        )
        return HeartbeatData(client_id=self.session.client_id, consumer_data_set=[data])

    # -- tasks ---------------------------------------------------------------------------------

    def _route_changed(self, topic: str) -> None:
        self.rebalance_soon()
        self._assigned.renew_locks_soon()

    async def _rebalance_for_ever(self) -> None:
        while True:
            is_unknown = any(self.session.known_route(topic) is None for topic in self.subscriptions)
            pause_ms = _INCOMPLETE_MS if is_unknown or self._assigned.is_incomplete else _REBALANCE_MS
            await wait_for_event(self._rebalance_wanted, pause_ms)
            await self._assigned.commit()  # a member that takes over a queue now starts after what is consumed
            await self._assigned.rebalance()

    async def _commit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_ms / 1000)
            await self._assigned.commit()
