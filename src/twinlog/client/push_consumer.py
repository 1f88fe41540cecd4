"""Hands every message of its topics to a listener, together with the other members of its group."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.consuming.concurrent_consumer import ConsumeCrew
from twinlog.client.consuming.listener import Listen, Listener
from twinlog.client.consuming.offset_store import LocalOffsets, RemoteOffsets
from twinlog.client.consuming.process_queue import CacheLimits
from twinlog.client.consuming.pulling import TAG, subscription_of
from twinlog.client.consuming.push_requests import PushRequests
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.consuming.queue_locks import QueueLocks
from twinlog.client.consuming.queue_worker import QueueWorker, WorkerSettings
from twinlog.client.consuming.rebalance import allocate_averagely, plan_moves
from twinlog.client.errors import BadArgument, BrokerRefused, NoRoute
from twinlog.client.options import ClientOptions
from twinlog.client.routing.routes import TopicRoute
from twinlog.client.routing.session import Failures, Session
from twinlog.client.routing.session_owner import SessionOwner
from twinlog.client.sending.outgoing import check_group
from twinlog.client.tasks import TaskSet, wait_for_event
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import (
    CheckClientBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    MessageQueue,
    SubscriptionData,
    decode_body,
    encode_body,
)
from twinlog.wire.codes import RequestCode, ResponseCode

log = get_logger(__name__)
_REBALANCE_MS = 20_000
_UNSETTLED_MS = 1_000  # while a route is unknown or another member still holds a lock
# Refusals of a first heartbeat that waiting does not change, such as wrong credentials (4.x answers them with 1).
_HOPELESS_CODES = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)


class StartFrom(Enum):
    """Where a group that is new to a queue begins."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIME = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    orderly: bool = False  # one message at a time per queue, in order, and never past a failed one
    broadcasting: bool = False  # every member gets every message
    start_from: StartFrom = StartFrom.LAST
    start_time_ms: int | None = None  # for StartFrom.TIME; half an hour ago by default
    concurrency: int = 20  # listeners at work at the same time
    retries_max: int = -1  # then the dead letters; -1: as the group is set up (16), orderly: for ever
    retry_pause_ms: int = 1_000  # orderly: before the same message is tried again
    pull_count_max: int = 32
    hold_ms: int = 15_000  # how long the broker may wait for new messages
    commit_ms: int = 5_000
    limits: CacheLimits = field(default_factory=CacheLimits)
    offsets_directory: Path | None = None  # broadcasting; ~/.twinlog/offsets by default
    close_ms_max: int = 10_000  # how long close() waits for listeners at work


class PushConsumer(SessionOwner):
    """A member of a consumer group.

        async def handle(message): print(message.body)

        consumer = PushConsumer("127.0.0.1:9876", "billing", handle)
        consumer.subscribe("Orders", "hot || cold")
        async with consumer:
            await asyncio.sleep(60)

    A listener that raises gets the message again later. Plain functions run in threads.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        listener: Listen,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = settings = consumer_options or ConsumerOptions()
        self.started_ms = 0
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.workers: dict[MessageQueue, QueueWorker] = {}
        self.listener = Listener(listener, settings.concurrency)
        self._requests = PushRequests(self)
        self.session = Session(
            name_servers,
            options,
            handlers=self._requests.handlers(),
            heartbeat=self._heartbeat,
            on_route_change=self._route_changed,
        )
        self.calls = QueueCalls(self.session)
        self.crew = ConsumeCrew(group, self.session, self.listener, settings.retries_max, settings.broadcasting)
        self._locks = QueueLocks(group, self.session)
        self.offsets = self._offset_store()
        self._worker_settings = WorkerSettings(
            group,
            settings.orderly,
            settings.orderly and not settings.broadcasting,
            settings.pull_count_max,
            settings.hold_ms,
            settings.retry_pause_ms,
            settings.retries_max,
            settings.limits,
        )
        self._rebalance_wanted = asyncio.Event()
        self._renewal_wanted = asyncio.Event()
        self._tasks = TaskSet()
        self._running = False
        self._unsettled = False  # a queue of ours has no worker yet: its lock or its broker was missing

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Receive messages of `topic` that match tags (`a || b`) or an SQL92 expression over properties."""
        version = int(time.time() * 1000)
        self.subscriptions[topic] = subscription_of(topic, expression, expression_type, version)
        if self._running:
            self._tasks.start(self._introduce(), "introduce")

    def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        if self._running:
            self._tasks.start(self._introduce(), "introduce")

    async def start(self) -> None:
        if not self.subscriptions:
            raise BadArgument(f"consumer group {self.group!r} has no subscription; call subscribe() before start()")
        self.started_ms = int(time.time() * 1000)
        if not self.settings.broadcasting:
            retry_topic = RETRY_PREFIX + self.group
            self.subscriptions.setdefault(
                retry_topic, subscription_of(retry_topic, "*", version=int(time.time() * 1000))
            )
        self.started_ms = int(time.time() * 1000)
        await super().start()
        try:
            for topic in list(self.subscriptions):
                await self._known(topic)
            await self._check_expressions()
            for error in await self.session.send_heartbeats():
                if isinstance(error, BrokerRefused) and error.code in _HOPELESS_CODES:
                    raise error
            await self._rebalance()
        except BaseException:
            await self.session.close()
            raise
        self._running = True
        if not self.settings.orderly:
            self.crew.start(self.settings.concurrency)
        self._tasks.keep(self._rebalance_for_ever, "rebalance")
        self._tasks.keep(self._commit_for_ever, "commit offsets")
        if self._worker_settings.needs_lock:
            self._tasks.keep(self._renew_locks, "renew locks")

    async def close(self) -> None:
        """Leave the group: finish what listeners are at, commit, release, say goodbye."""
        self._running = False
        await self._tasks.close()
        await asyncio.gather(*(w.stop(self.settings.close_ms_max / 1000) for w in self.workers.values()))
        await self.crew.close(self.settings.close_ms_max / 1000)
        await self.commit()
        if self._worker_settings.needs_lock:
            await self._locks.release(list(self.workers))
        self.workers.clear()
        await self.session.unregister(consumer_group=self.group)
        await super().close()
        self.listener.close()

    async def commit(self) -> None:
        """Save the progress of all queues now."""
        workers = list(self.workers.values())
        results = await asyncio.gather(*(worker.commit() for worker in workers), return_exceptions=True)
        for worker, result in zip(workers, results, strict=True):
            if isinstance(result, Failures):
                log.warning("an offset was not committed", topic=worker.queue.topic, error=str(result))
            elif isinstance(result, BaseException):
                raise result

    def rebalance_soon(self) -> None:
        self._rebalance_wanted.set()

    def _route_changed(self, topic: str) -> None:
        self.rebalance_soon()
        self._renewal_wanted.set()  # a new master has no locks yet: ours must be there before another member's

    # -- sharing the queues --------------------------------------------------------------------

    async def _rebalance_for_ever(self) -> None:
        while True:
            unsettled = self._unsettled or any(self.session.known_route(t) is None for t in self.subscriptions)
            await wait_for_event(self._rebalance_wanted, _UNSETTLED_MS if unsettled else _REBALANCE_MS)
            await self.commit()  # a member that takes over a queue now starts after what is done
            await self._rebalance()

    async def _rebalance(self) -> None:
        self._unsettled = False
        for topic in list(self.subscriptions):
            try:
                route = await self._known(topic)
                if route is not None:
                    await self._move(topic, await self._my_queues(route))
            except Failures as error:
                self._unsettled = True
                log.warning("a topic could not be rebalanced", topic=topic, error=str(error))
        gone = [queue for queue in self.workers if queue.topic not in self.subscriptions]
        await self._release(gone)

    async def _my_queues(self, route: TopicRoute) -> list[MessageQueue]:
        if self.settings.broadcasting:
            return list(route.readable)
        return allocate_averagely(route.readable, await self._members(route), self.session.client_id)

    async def _members(self, route: TopicRoute) -> list[str]:
        """The client ids of the group, as any of the topic's brokers knows them."""
        names = list(route.brokers)
        random.shuffle(names)
        last: Exception | None = None
        for name in names:
            address = route.address_of(name)
            if address is None:
                continue
            try:
                answer = await self.session.ask(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group}
                )
            except (BrokerRefused, NetError) as error:
                last = error
                continue
            return decode_body(ConsumerIdList, answer.body).consumer_id_list
        raise last or NoRoute(route.topic, ";".join(self.session.name_servers), "broker")

    async def _move(self, topic: str, mine: list[MessageQueue]) -> None:
        held = [queue for queue in self.workers if queue.topic == topic]
        release, take = plan_moves(held, mine)
        await self._release(release)
        if self._worker_settings.needs_lock and take:
            wanted = len(take)
            take = sorted(await self._locks.acquire(take))
            self._unsettled |= len(take) < wanted
        for queue in take:
            offset, committed = await self._first_offset(queue)
            self._start_worker(queue, offset, committed)
        if release or take:
            log.info("queues changed", group=self.group, topic=topic, released=len(release), taken=len(take))

    def _start_worker(self, queue: MessageQueue, offset: int, committed: int | None) -> None:
        worker = QueueWorker(
            queue,
            offset,
            self._worker_settings,
            session=self.session,
            calls=self.calls,
            store=self.offsets,
            subscription=self.subscriptions[queue.topic],
            listener=self.listener,
            crew=self.crew,
            committed=committed,
        )
        worker.lock_until(self._locks.until(queue))
        self.workers[queue] = worker
        worker.start()

    async def _release(self, queues: Iterable[MessageQueue]) -> None:
        leaving = [self.workers.pop(queue) for queue in queues]
        await asyncio.gather(*(worker.stop(self.settings.close_ms_max / 1000) for worker in leaving))
        for worker in leaving:
            try:
                await worker.commit()
            except Failures as error:
                log.warning("an offset was not committed", topic=worker.queue.topic, error=str(error))
        if self._worker_settings.needs_lock and leaving:
            await self._locks.release([worker.queue for worker in leaving])

    async def _first_offset(self, queue: MessageQueue) -> tuple[int, int | None]:
        """(where to begin in `queue`, what the group has committed there)."""
        committed = await self.offsets.load(queue)
        if committed is not None:
            return committed, committed
        if queue.topic.startswith(RETRY_PREFIX):
            return 0, None
        if self.settings.start_from is StartFrom.LAST:
            return await self.calls.max_offset(queue), None
        if self.settings.start_from is StartFrom.FIRST:
            return await self.calls.min_offset(queue), None
        half_an_hour_ago = self.started_ms - 30 * 60 * 1000
        return await self.calls.offset_at(queue, self.settings.start_time_ms or half_an_hour_ago), None

    # -- details -------------------------------------------------------------------------------

    async def _known(self, topic: str) -> TopicRoute | None:
        """The topic's route; None while nobody knows it: it may appear later."""
        with contextlib.suppress(NoRoute):
            return await self.session.route(topic)
        return None

    async def _introduce(self) -> None:
        for topic in list(self.subscriptions):
            await self._known(topic)
        for queue, worker in self.workers.items():
            worker.subscription = self.subscriptions.get(queue.topic, worker.subscription)
        await self.session.send_heartbeats()
        self.rebalance_soon()

    async def _check_expressions(self) -> None:
        """Let a broker refuse an SQL92 expression now, with its reason, and not by silence later."""
        for topic, subscription in self.subscriptions.items():
            route = self.session.known_route(topic)
            if subscription.expression_type == TAG or route is None:
                continue
            body = CheckClientBody(client_id=self.session.client_id, group=self.group, subscription_data=subscription)
            address = next(filter(None, map(route.address_of, route.brokers)), None)
            if address is not None:
                await self.session.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    async def _commit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_ms / 1000)
            await self.commit()

    async def _renew_locks(self) -> None:
        renewed = set(self.workers)
        while True:
            missing = any(queue not in renewed for queue in self.workers)
            await wait_for_event(self._renewal_wanted, _UNSETTLED_MS if missing else _REBALANCE_MS)
            try:
                renewed = await self._locks.acquire(list(self.workers))
            except Failures as error:
                renewed = set()
                log.warning("queue locks could not be renewed", group=self.group, error=str(error))
            for queue, worker in self.workers.items():
                worker.lock_until(self._locks.until(queue))

    def _offset_store(self) -> RemoteOffsets | LocalOffsets:
        if not self.settings.broadcasting:
            return RemoteOffsets(self.calls, self.group)
        folder = self.settings.offsets_directory or Path.home() / ".twinlog" / "offsets"
        return LocalOffsets(folder / (self.session.options.instance_name or "default") / self.group / "offsets.json")

    def _heartbeat(self) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self.settings.broadcasting else "CLUSTERING",
            consume_from_where=self.settings.start_from.value,
            subscription_data_set=list(self.subscriptions.values()),
        )
        return HeartbeatData(client_id=self.session.client_id, consumer_data_set=[data])
