"""Sends messages: one, many in one request, one-way, in order, delayed, or as half of a transaction."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twinlog.client.errors import (
    BadArgument,
    BadMessage,
    BrokerRefused,
    NoMaster,
    NoRoute,
    SendFailed,
)
from twinlog.client.options import ClientOptions
from twinlog.client.routing.queue_choice import QueueChoice
from twinlog.client.routing.routes import TopicRoute
from twinlog.client.routing.session import Failures, Session
from twinlog.client.routing.session_owner import SessionOwner
from twinlog.client.sending.outgoing import (
    STORED_CODES,
    Outgoing,
    SendContext,
    SendResult,
    SendStatus,
    body_bytes,
    check_group,
    check_message,
    encode_send,
    encode_send_batch,
    queue_for_key,
    read_send_answer,
)
from twinlog.client.sending.replies import REPLY, Replies
from twinlog.client.sending.retry_plan import RetryPlan, Step, avoid_ms
from twinlog.client.sending.transactions import CheckBack, Outcome, TransactionResult, end_transaction_header
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire import sys_flag
from twinlog.wire.bodies import HeartbeatData, MessageQueue, ProducerData
from twinlog.wire.codes import RequestCode
from twinlog.wire.headers import SendHeaderV2
from twinlog.wire.message import Message
from twinlog.wire.message_id import UniqueIds

log = get_logger(__name__)
Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    send_timeout_ms: int = 3_000  # of one send with all its retries
    retries: int = 2  # after failures that may have stored the message; others are repeated within the time
    new_topic_queues: int = 4  # when the first message creates its topic
    compress_above_bytes: int = 4096  # 0 never compresses
    compression: str = "zlib"  # or lz4, zstd, which only 5.x clients read
    compression_level: int = 5
    message_bytes_max: int = 4 * 1024 * 1024
    avoid_ms: int = 10_000  # how long a broker that failed is left alone


class Producer(SessionOwner):
    """Sends messages for one producer group.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            sent = await producer.send(Outgoing("Orders", b"one tea", tags="hot", keys="order-1"))

    `check_transaction` answers a broker that asks what became of a half message; see send_in_transaction.
    """

    def __init__(
        self,
        name_servers: str,
        group: str = "DEFAULT_PRODUCER",
        *,
        options: ClientOptions | None = None,
        producer_options: ProducerOptions | None = None,
        check_transaction: Callable[[Message], Outcome | Awaitable[Outcome]] | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._settings = producer_options or ProducerOptions()
        self._context = SendContext(
            group,
            self._settings.new_topic_queues,
            self._settings.compress_above_bytes,
            self._settings.compression,
            self._settings.compression_level,
        )
        self._check_back = CheckBack(group, check_transaction)
        self._replies = Replies()
        handlers = {**self._check_back.handlers(), **self._replies.handlers()}
        self.session = Session(name_servers, options, handlers=handlers, heartbeat=self._heartbeat)
        self._choice = QueueChoice()
        self._ids = UniqueIds(self.session.client_id.partition("@")[0])

    async def close(self) -> None:
        await self._check_back.close()
        await self.session.unregister(producer_group=self.group)
        await super().close()

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        message: Outgoing,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Store `message` and return where. A `queue`, a `selector` or a sharding key fixes the queue, and
        with it the order; otherwise a send that fails goes to another broker."""
        now_ms = _now_ms()
        check_message(message, self._settings.message_bytes_max)
        properties = message.wire_properties()
        message_id = properties.setdefault(names.UNIQ_KEY, self._ids.next(now_ms))

        def build(chosen: MessageQueue) -> tuple[SendHeaderV2, bytes]:
            return encode_send(message, chosen, properties, self._context, now_ms)

        is_reply = properties.get(names.MSG_TYPE) == REPLY
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2
        deadline_ms = self._deadline_ms(timeout_ms)
        fixed = await self._fixed_queue(message, queue, selector, deadline_ms)
        return await self._store(message.topic, code, build, message_id, fixed, deadline_ms)

    async def send_batch(
        self, messages: Sequence[Outgoing], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Store `messages`, all of one topic, in one queue, one after another, with one request."""
        self._check_batch(messages)
        now_ms = _now_ms()
        ids = [self._ids.next(now_ms) for _ in messages]

        def build(chosen: MessageQueue) -> tuple[SendHeaderV2, bytes]:
            return encode_send_batch(messages, ids, chosen, self._context, now_ms)

        deadline_ms = self._deadline_ms(timeout_ms)
        fixed = await self._fixed_queue(messages[0], queue, None, deadline_ms)
        code = RequestCode.SEND_BATCH_MESSAGE
        return await self._store(messages[0].topic, code, build, ",".join(ids), fixed, deadline_ms)

    async def send_oneway(
        self, message: Outgoing, *, queue: MessageQueue | None = None, selector: Selector | None = None
    ) -> str:
        """Send without waiting for an answer: fast, and lost without notice when the broker fails. Its id."""
        check_message(message, self._settings.message_bytes_max)
        now_ms = _now_ms()
        deadline_ms = self._deadline_ms(None)
        chosen = await self._fixed_queue(message, queue, selector, deadline_ms)
        route = await self._route(message.topic, deadline_ms)
        chosen = chosen or self._choice.choose(route, _steady_ms())
        properties = message.wire_properties()
        message_id = properties.setdefault(names.UNIQ_KEY, self._ids.next(now_ms))
        header, body = encode_send(message, chosen, properties, self._context, now_ms)
        await self.session.tell(_master(route, chosen), RequestCode.SEND_MESSAGE_V2, header, body)
        return message_id

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a message for `topic` may go to."""
        return (await self._route(topic, self._deadline_ms(None))).writable

    # -- transactions --------------------------------------------------------------------------

    async def send_in_transaction(
        self, message: Outgoing, local: Callable[[Outgoing], Outcome | Awaitable[Outcome]]
    ) -> TransactionResult:
        """Store `message` invisibly, run `local`, then make it visible (COMMIT) or drop it (ROLLBACK).

        With Outcome.UNKNOWN, or when `local` raises (the error reaches the caller), the broker asks
        `check_transaction` later, on this or another producer of the group.
        """
        now_ms = _now_ms()
        check_message(message, self._settings.message_bytes_max)
        if message.delay_level or message.delay_ms or message.deliver_at_ms:
            raise BadMessage(f"message for {message.topic!r} is delayed, which a transaction cannot be")
        properties = message.wire_properties() | {names.TRAN_MSG: "true", names.PGROUP: self.group}
        message_id = properties.setdefault(names.UNIQ_KEY, self._ids.next(now_ms))
        prepared = sys_flag.TRANSACTION_PREPARED

        def build(chosen: MessageQueue) -> tuple[SendHeaderV2, bytes]:
            return encode_send(message, chosen, properties, self._context, now_ms, sys_flag=prepared)

        deadline_ms = self._deadline_ms(None)
        fixed = await self._fixed_queue(message, None, None, deadline_ms)
        sent = await self._store(message.topic, RequestCode.SEND_MESSAGE_V2, build, message_id, fixed, deadline_ms)
        outcome = Outcome.ROLLBACK
        try:
            if sent.status is SendStatus.OK:  # as in Java: a half message that may be lost is dropped
                outcome = Outcome.UNKNOWN
                result = local(message)
                outcome = result if isinstance(result, Outcome) else await result
        finally:
            await self._end_transaction(sent, outcome)
        return TransactionResult(sent, outcome)

    async def _end_transaction(self, sent: SendResult, outcome: Outcome) -> None:
        if outcome is Outcome.UNKNOWN:
            return
        header = end_transaction_header(self.group, sent, outcome)
        topic, plan = sent.queue.topic, RetryPlan(self._deadline_ms(None), retries=0, fixed=True)
        while True:
            try:
                # The topic may be a new one, whose route is still borrowed.
                route = await self.session.route(topic, create_queues=self._settings.new_topic_queues)
                address = _master(route, sent.queue)
                left_ms = max(1, plan.left_ms(_steady_ms()))
                await self.session.ask(address, RequestCode.END_TRANSACTION, header, timeout_ms=left_ms)
                return
            except Failures as error:
                if plan.after(error, sent.queue.broker_name, (), _steady_ms()) is not Step.NEW_ROUTE:
                    text = "the end of a transaction was not accepted; the broker will ask for it"
                    log.warning(text, id=sent.message_id, error=str(error))
                    return
                await self.session.renewed_route(topic, max(1, plan.left_ms(_steady_ms())))

    # -- request and reply ---------------------------------------------------------------------

    async def request(self, message: Outgoing, *, timeout_ms: int = 3_000) -> Message:
        """Send `message` and return the reply that some consumer sends with `reply_to`."""
        with self._replies.expect(self.session.client_id, timeout_ms) as expected:
            asked = Outgoing(**{name: getattr(message, name) for name in Outgoing.__dataclass_fields__})
            asked.properties = {**message.properties, **expected.properties}
            if self.session.known_route(message.topic) is None:
                # Replies come over a connection that the broker knows by its heartbeat.
                await self._route(message.topic, self._deadline_ms(timeout_ms))
                await self.session.send_heartbeats()
            await self.send(asked, timeout_ms=timeout_ms)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    return await expected.answer
            except TimeoutError:
                raise RequestTimeout(f"the consumers of {message.topic}", 0, timeout_ms) from None

    # -- details -------------------------------------------------------------------------------

    async def _store(
        self,
        topic: str,
        code: int,
        build: Callable[[MessageQueue], tuple[SendHeaderV2, bytes]],
        message_id: str,
        fixed: MessageQueue | None,
        deadline_ms: int,
    ) -> SendResult:
        """Send what `build` makes for a queue until a broker has stored it."""
        plan = RetryPlan(deadline_ms, retries=self._settings.retries, fixed=fixed is not None)
        while True:
            route = await self._route(topic, deadline_ms)
            queue = fixed or self._choice.choose(route, _steady_ms(), tried=plan.tried)
            try:
                address = _master(route, queue)
                header, body = build(queue)
                left_ms = max(1, plan.left_ms(_steady_ms()))
                answer = await self.session.ask(address, code, header, body, timeout_ms=left_ms, accept=STORED_CODES)
            except (NetError, BrokerRefused, NoMaster) as error:
                step = self._after_failure(plan, error, route, queue)
                if step is Step.RAISE:
                    raise
                if step is Step.GIVE_UP:
                    raise SendFailed(topic, plan.failures) from error
                if step is Step.NEW_ROUTE:
                    await self.session.renewed_route(topic, max(1, plan.left_ms(_steady_ms())))
                continue
            self._choice.worked(address)
            return read_send_answer(answer.code, answer.fields, queue, message_id)

    def _after_failure(self, plan: RetryPlan, error: Exception, route: TopicRoute, queue: MessageQueue) -> Step:
        now_ms = _steady_ms()
        address, pause_ms = route.master_of(queue.broker_name), avoid_ms(error, self._settings.avoid_ms)
        if address is not None and pause_ms:
            self._choice.failed(address, now_ms + pause_ms)
        return plan.after(error, queue.broker_name, {each.broker_name for each in route.writable}, now_ms)

    async def _fixed_queue(
        self, message: Outgoing, queue: MessageQueue | None, selector: Selector | None, deadline_ms: int
    ) -> MessageQueue | None:
        if queue is not None:
            if queue.topic != message.topic:
                raise BadArgument(f"queue {queue} is not one of topic {message.topic!r}")
            return queue
        if selector is not None:
            return selector((await self._route(message.topic, deadline_ms)).writable)
        if message.sharding_key:
            return queue_for_key(message.sharding_key, (await self._route(message.topic, deadline_ms)).writable)
        return None

    async def _route(self, topic: str, deadline_ms: int) -> TopicRoute:
        """A route with queues to write. While its brokers have no master, one is waited for until the deadline."""
        route = await self.session.route(topic, create_queues=self._settings.new_topic_queues)
        asked = False
        while not route.writable:
            left_ms = deadline_ms - _steady_ms()
            if asked and not route.masterless:
                raise NoRoute(topic, ";".join(self.session.name_servers), "writable queue")
            if left_ms <= 0:
                raise NoMaster(topic, ", ".join(route.masterless))
            route = await self.session.renewed_route(topic, left_ms)
            asked = True
        return route

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        return _steady_ms() + (timeout_ms or self._settings.send_timeout_ms)

    def _check_batch(self, messages: Sequence[Outgoing]) -> None:
        if not messages:
            raise BadMessage("a batch needs at least one message")
        for message in messages:
            check_message(message, self._settings.message_bytes_max)
            if message.topic != messages[0].topic:
                raise BadMessage(f"a batch has one topic, this one has {messages[0].topic!r} and {message.topic!r}")
            if message.delay_level or message.delay_ms or message.deliver_at_ms:
                raise BadMessage(f"message for {message.topic!r} is delayed, which a batch cannot be")
        size = sum(len(body_bytes(message.body)) for message in messages)
        if size > self._settings.message_bytes_max:
            raise BadMessage(f"a batch of {size} bytes is above {self._settings.message_bytes_max}; send it in parts")

    def _heartbeat(self) -> HeartbeatData:
        producers = [ProducerData(group_name=self.group)]
        return HeartbeatData(client_id=self.session.client_id, producer_data_set=producers)


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    address = route.master_of(queue.broker_name)
    if address is None:
        raise NoMaster(queue.topic, queue.broker_name)
    return address


def _now_ms() -> int:
    """The time of day, for what a message says of itself."""
    return int(time.time() * 1000)


def _steady_ms() -> int:
    """For deadlines and pauses."""
    return int(time.monotonic() * 1000)
