"""Sends messages: one, many in one request, one-way, in order, delayed, or in a transaction."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from twinlog.base.clock import wall_clock_ms
from twinlog.client.base_client import BaseClient
from twinlog.client.errors import BadMessage, BatchPartlySent, BrokerRefused
from twinlog.client.hooks import entered
from twinlog.client.name_rules import check_group
from twinlog.client.options import ClientOptions
from twinlog.client.routing.session import Session
from twinlog.client.sending.accumulator import Accumulator
from twinlog.client.sending.batches import check_batch, join_results, split_batch
from twinlog.client.sending.draft import BatchItem, SendContext, batch_item, draft_batch, draft_message
from twinlog.client.sending.outgoing import Outgoing, SendResult, SendStatus
from twinlog.client.sending.producer_options import ProducerOptions
from twinlog.client.sending.replies import Replies
from twinlog.client.sending.send_hooks import Sending, SendKind, kind_of_send
from twinlog.client.sending.sender import Selector, Sender
from twinlog.client.sending.transactions import CheckBack, Outcome, TransactionResult, end_transaction_header
from twinlog.client.tracing import Tracer
from twinlog.net.errors import RequestTimeout
from twinlog.wire.bodies import HeartbeatData, MessageQueue, ProducerData
from twinlog.wire.message import Message
from twinlog.wire.values import sys_flag
from twinlog.wire.values.message_id import UniqueIds
from twinlog.wire.values.recall_handle import parse_recall_handle


class Producer(BaseClient):
    """Sends messages for one producer group.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            sent = await producer.send(Outgoing("Orders", b"one tea", tags="hot", keys="order-1"))

    `check_transaction` answers a broker that asks for the outcome of a transaction; see send_in_transaction.
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
            self._settings.message_bytes_max,
            self._settings.delay_level_max,
        )
        self._check_back = CheckBack(group, check_transaction)
        self._replies = Replies((options or ClientOptions()).decompressed_bytes_max)
        handlers = {**self._check_back.handlers(), **self._replies.handlers()}
        self.session = Session(name_servers, options, handlers=handlers, heartbeat=self._heartbeat)
        self._sender = Sender(self.session, self._settings, self._context)
        self._hooks = list(self._settings.hooks)
        self._tracer: Tracer | None = None
        if self._settings.enable_trace:
            self._tracer = Tracer(name_servers, group, "PRODUCE", options, self._settings.trace_topic)
            self._hooks.append(self._tracer.sending)
        self._ids = UniqueIds(self.session.client_id.partition("@")[0])
        self._accumulator = Accumulator(self._settings, self._item, self._send_alone, self._send_together)

    async def start(self) -> None:
        """Begin to work; `async with` does it too."""
        await super().start()
        if self._tracer is not None:
            await self._tracer.start()

    async def close(self) -> None:
        """Send what is still gathered, and leave the producer group."""
        await self._accumulator.close()
        if self._tracer is not None:
            await self._tracer.close()
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
        """Store `message` and return where.

        A `queue`, a `selector` or a sharding key fixes the queue, and with it the order; otherwise a send that fails
        is repeated on another broker. With `ProducerOptions.auto_batch` it may leave in one request with others.
        """
        if not self._hooks:
            return await self._send(message, queue, selector, timeout_ms)
        return await self._observed(
            [message], None, lambda messages: self._send(messages[0], queue, selector, timeout_ms)
        )

    async def _send(
        self, message: Outgoing, queue: MessageQueue | None, selector: Selector | None, timeout_ms: int | None
    ) -> SendResult:
        sender = self._sender
        deadline_ms = sender.deadline_ms(timeout_ms)
        if queue is not None or selector is not None or message.sharding_key:
            queue = await sender.fixed_queue(message, queue, selector, deadline_ms)
        if self._settings.auto_batch:
            return await self._accumulator.send(message, queue, timeout_ms)
        now_ms = wall_clock_ms()
        draft = draft_message(message, self._ids.next(now_ms), self._context, now_ms)
        return await sender.store(draft, queue, deadline_ms)

    async def send_batch(
        self, messages: Sequence[Outgoing], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Store `messages`, all of one topic, in one queue, one after another.

        They leave in one request, or, when they are larger than `message_bytes_max`, in as many as it takes; each has
        the whole time. The result has the ids of all messages, and the place of the first. When a request fails after
        others were stored, BatchPartlySent says how many messages are.
        """
        if not self._hooks:
            return await self._send_batch(messages, queue, timeout_ms)
        return await self._observed(list(messages), None, lambda seen: self._send_batch(seen, queue, timeout_ms))

    async def _send_batch(
        self, messages: Sequence[Outgoing], queue: MessageQueue | None, timeout_ms: int | None
    ) -> SendResult:
        check_batch(messages)
        results: list[SendResult] = []
        bytes_max = self._settings.message_bytes_max
        for part in split_batch([self._item(message) for message in messages], bytes_max):
            is_too_large = part[0].request_bytes > bytes_max  # in a batch; alone it may pass
            try:
                if is_too_large:
                    results.append(await self._send_alone(part[0].message, queue, timeout_ms))
                else:
                    results.append(await self._send_together(part, queue, timeout_ms))
            except Exception as error:
                if not results:
                    raise
                raise BatchPartlySent(join_results(results), len(messages), error) from error
            queue = results[0].queue
        return join_results(results)

    async def send_oneway(
        self, message: Outgoing, *, queue: MessageQueue | None = None, selector: Selector | None = None
    ) -> str:
        """Send without waiting for an answer: fast, and lost without notice when the broker fails. Returns its id."""
        call = Sending(self.group, [message])
        with entered(self._hooks, call):
            try:
                return await self._send_oneway(call.messages[0], queue, selector)
            except BaseException as error:
                call.error = error
                raise

    async def _send_oneway(self, message: Outgoing, queue: MessageQueue | None, selector: Selector | None) -> str:
        now_ms = wall_clock_ms()
        draft = draft_message(message, self._ids.next(now_ms), self._context, now_ms)
        deadline_ms = self._sender.deadline_ms()
        fixed = await self._sender.fixed_queue(message, queue, selector, deadline_ms)
        await self._sender.send_oneway(draft, fixed, deadline_ms)
        return draft.message_id

    async def _observed(
        self, messages: list[Outgoing], kind: SendKind | None, send: Callable[[list[Outgoing]], Awaitable[SendResult]]
    ) -> SendResult:
        """Send within the hooks, which may replace messages and see the outcome."""
        call = Sending(self.group, messages, kind or kind_of_send(messages))
        with entered(self._hooks, call):
            try:
                call.result = await send(call.messages)
            except BaseException as error:
                call.error = error
                raise
            return call.result

    def _item(self, message: Outgoing) -> BatchItem:
        return batch_item(message, self._ids.next(wall_clock_ms()), self._settings.message_bytes_max)

    async def _send_alone(self, message: Outgoing, queue: MessageQueue | None, timeout_ms: int | None) -> SendResult:
        now_ms = wall_clock_ms()
        draft = draft_message(message, self._ids.next(now_ms), self._context, now_ms)
        deadline_ms = self._sender.deadline_ms(timeout_ms)
        fixed = await self._sender.fixed_queue(message, queue, None, deadline_ms)
        return await self._sender.store(draft, fixed, deadline_ms)

    async def _send_together(
        self, items: Sequence[BatchItem], queue: MessageQueue | None, timeout_ms: int | None
    ) -> SendResult:
        """Store `items`, which fit one request."""
        draft = draft_batch(items, wall_clock_ms())
        deadline_ms = self._sender.deadline_ms(timeout_ms)
        fixed = await self._sender.fixed_queue(items[0].message, queue, None, deadline_ms)
        return await self._sender.store(draft, fixed, deadline_ms)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a message for `topic` may go to."""
        return (await self._sender.route(topic, self._sender.deadline_ms())).writable

    # -- transactions --------------------------------------------------------------------------

    async def send_in_transaction(
        self, message: Outgoing, local: Callable[[Outgoing], Outcome | Awaitable[Outcome]]
    ) -> TransactionResult:
        """Store `message` invisibly, run `local`, then make it visible (COMMIT) or drop it (ROLLBACK).

        With Outcome.UNKNOWN, or when `local` raises (the error reaches the caller), the broker asks
        `check_transaction` later, on this or another producer of the group.
        """
        sent = await self._observed([message], SendKind.HALF, lambda messages: self._send_half(messages[0]))
        outcome = Outcome.ROLLBACK
        try:
            if sent.status is SendStatus.OK:  # as in Java: a half message that may be lost is dropped
                outcome = Outcome.UNKNOWN
                result = local(message)
                outcome = result if isinstance(result, Outcome) else await result
        finally:
            if outcome is not Outcome.UNKNOWN:
                await self._sender.end_transaction(sent, end_transaction_header(self.group, sent, outcome))
            if self._tracer is not None:
                self._tracer.transaction_ended(message, sent, outcome)
        return TransactionResult(sent, outcome)

    async def _send_half(self, message: Outgoing) -> SendResult:
        now_ms = wall_clock_ms()
        prepared = sys_flag.TRANSACTION_PREPARED
        new_id = self._ids.next(now_ms)
        draft = draft_message(message, new_id, self._context, now_ms, sys_flag=prepared, half_of=self.group)
        if message.is_delayed:
            raise BadMessage(f"message for {message.topic!r} is delayed, which is not possible in a transaction")
        deadline_ms = self._sender.deadline_ms()
        fixed = await self._sender.fixed_queue(message, None, None, deadline_ms)
        return await self._sender.store(draft, fixed, deadline_ms)

    # -- recall --------------------------------------------------------------------------------

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take back a message that waits for its time (`delay_ms`, `deliver_at_ms`); returns its id.

        `SendResult.recall_handle` has the handle. Brokers of 5.3 and later do this when `recallMessageEnable` is set;
        one that has delivered the message, or is about to, raises BrokerRefused.
        """
        try:
            message_id = await self._sender.recall(topic, recall_handle)
        except BrokerRefused:
            handle = parse_recall_handle(recall_handle)
            if self._tracer is not None and handle is not None:
                self._tracer.recalled(topic, handle.unique_key, ok=False)
            raise
        if self._tracer is not None:
            self._tracer.recalled(topic, message_id, ok=True)
        return message_id

    # -- request and reply ---------------------------------------------------------------------

    async def request(self, message: Outgoing, *, timeout_ms: int = 3_000) -> Message:
        """Send `message` and return the reply that some consumer sends with `reply_to`."""
        with self._replies.expect(self.session.client_id, timeout_ms) as expected:
            asked = dataclasses.replace(message, system_properties=message.system_properties | expected.properties)
            if self.session.known_route(message.topic) is None:
                # The broker sends replies over the connection that the heartbeat came from.
                await self._sender.route(message.topic, self._sender.deadline_ms(timeout_ms))
                await self.session.send_heartbeats()
            await self.send(asked, timeout_ms=timeout_ms)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    return await expected.answer
            except TimeoutError:
                raise RequestTimeout(f"the consumers of {message.topic}", 0, timeout_ms) from None

    def _heartbeat(self) -> HeartbeatData:
        producers = [ProducerData(group_name=self.group)]
        return HeartbeatData(client_id=self.session.client_id, producer_data_set=producers)
