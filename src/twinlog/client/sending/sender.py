"""Sends one request until a broker has stored it, or its time is over.

`routing` names the brokers, `RetryPlan` decides what to do after a failure, and this module does it.
"""

from collections.abc import Callable, Sequence

from twinlog.base.clock import monotonic_ms
from twinlog.client.errors import REQUEST_FAILURES, BadArgument, BrokerRefused, NoMaster, NoRoute, SendFailed
from twinlog.client.routing.failures import avoid_ms
from twinlog.client.routing.queue_choice import QueueChoice
from twinlog.client.routing.routes import TopicRoute
from twinlog.client.routing.session import Session
from twinlog.client.sending.draft import SendContext, SendDraft, send_header
from twinlog.client.sending.outgoing import (
    STORED_CODES,
    Outgoing,
    SendResult,
    queue_for_key,
    read_send_answer,
)
from twinlog.client.sending.producer_options import ProducerOptions
from twinlog.client.sending.retry_plan import RetryPlan, Step
from twinlog.client.sending.send_frames import SendFrames
from twinlog.net.connection import Connection, next_opaque
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.values.recall_handle import parse_recall_handle

log = get_logger(__name__)
Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


class Sender:
    """The attempts of one producer."""

    def __init__(self, session: Session, options: ProducerOptions, context: SendContext) -> None:
        self._session, self._options, self._context = session, options, context
        self._choice = QueueChoice()
        self._frames = None if session.signs_requests else SendFrames(context)

    def deadline_ms(self, timeout_ms: int | None = None) -> int:
        """When a send that begins now has to be stored, by the monotonic clock."""
        return monotonic_ms() + (timeout_ms or self._options.send_timeout_ms)

    async def store(self, draft: SendDraft, fixed: MessageQueue | None, deadline_ms: int) -> SendResult:
        """Send `draft` until a broker has stored it; to the queue `fixed` only, if given."""
        session, plan = self._session, None
        while True:
            route = session.known_route(draft.topic)
            if route is None or route.borrowed_queues or not route.writable:
                route = await self.route(draft.topic, deadline_ms)
            now_ms = monotonic_ms()
            queue = fixed or self._choice.choose(route, now_ms, tried=plan.tried if plan else ())
            address = route.master_of(queue.broker_name)
            try:
                if address is None:
                    raise NoMaster(queue.topic, queue.broker_name)
                left_ms = max(1, deadline_ms - now_ms)
                connection = session.current(address, draft.code)
                if connection is None:
                    connection = await session.connect(address, draft.code, left_ms)
                    left_ms = max(1, deadline_ms - monotonic_ms())
                answer = await self._ask(connection, draft, queue, left_ms)
                if answer.code not in STORED_CODES:
                    raise BrokerRefused(draft.code, answer.code, answer.remark, address)
            except (NetError, BrokerRefused, NoMaster) as error:
                if address is not None:
                    session.failed_at(address, error)
                plan = plan or RetryPlan(deadline_ms, retries=self._options.retries, fixed=fixed is not None)
                step = self._after_failure(plan, error, route, queue)
                if step is Step.RAISE:
                    raise
                if step is Step.GIVE_UP:
                    raise SendFailed(draft.topic, plan.failures) from error
                if step is Step.NEW_ROUTE:
                    await session.renewed_route(draft.topic, max(1, plan.left_ms(monotonic_ms())))
                continue
            self._choice.worked(address)
            return read_send_answer(answer, queue, draft.message_id)

    async def _ask(self, connection: Connection, draft: SendDraft, queue: MessageQueue, timeout_ms: int) -> Command:
        if self._frames is None:
            fields = encode_fields(send_header(draft, queue, self._context))
            return await connection.request(draft.code, fields, draft.body, timeout_ms)
        opaque = next_opaque()
        return await connection.ask(self._frames.encode(draft, queue, opaque), opaque, draft.code, timeout_ms)

    async def send_oneway(self, draft: SendDraft, fixed: MessageQueue | None, deadline_ms: int) -> None:
        """Send `draft`, once, without an answer."""
        route = await self.route(draft.topic, deadline_ms)
        queue = fixed or self._choice.choose(route, monotonic_ms())
        header = send_header(draft, queue, self._context)
        await self._session.send_oneway(_master(route, queue), RequestCode.SEND_MESSAGE_V2, header, draft.body)

    async def end_transaction(self, sent: SendResult, header: EndTransactionHeader) -> None:
        """Send the outcome to the broker that has the half message; after a failure the broker will ask for it."""
        topic, plan = sent.queue.topic, RetryPlan(self.deadline_ms(), retries=0, fixed=True)
        while True:
            try:
                # The topic may be new, and its route still borrowed.
                route = await self._session.route(topic, create_queues=self._options.new_topic_queues)
                address = _master(route, sent.queue)
                left_ms = max(1, plan.left_ms(monotonic_ms()))
                await self._session.ask(address, RequestCode.END_TRANSACTION, header, timeout_ms=left_ms)
                return
            except REQUEST_FAILURES as error:
                if plan.after(error, sent.queue.broker_name, (), monotonic_ms()) is not Step.NEW_ROUTE:
                    text = "the end of a transaction was not accepted; the broker will ask for it"
                    log.warning(text, id=sent.message_id, error=str(error))
                    return
                await self._session.renewed_route(topic, max(1, plan.left_ms(monotonic_ms())))

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Ask the broker that the handle names to drop a message that waits for its time; the message's id."""
        handle = parse_recall_handle(recall_handle)
        if handle is None or handle.topic != topic:
            raise BadArgument(
                f"{recall_handle!r} is not a recall handle of topic {topic!r}; see SendResult.recall_handle"
            )
        address = (await self.route(topic, self.deadline_ms())).master_of(handle.broker_name)
        if address is None:
            raise NoMaster(topic, handle.broker_name)
        fields = {
            "producerGroup": self._context.group,
            "topic": topic,
            "recallHandle": recall_handle,
            "bname": handle.broker_name,
        }
        timeout_ms = self._options.send_timeout_ms
        answer = await self._session.ask(address, RequestCode.RECALL_MESSAGE, fields, timeout_ms=timeout_ms)
        return (answer.fields or {}).get("msgId", handle.unique_key)

    async def fixed_queue(
        self, message: Outgoing, queue: MessageQueue | None, selector: Selector | None, deadline_ms: int
    ) -> MessageQueue | None:
        """The only queue that `message` may go to; None if any will do."""
        if queue is not None:
            if queue.topic != message.topic:
                raise BadArgument(f"queue {queue} is not one of topic {message.topic!r}")
            return queue
        if selector is not None:
            return selector((await self.route(message.topic, deadline_ms)).writable)
        if message.sharding_key:
            return queue_for_key(message.sharding_key, (await self.route(message.topic, deadline_ms)).writable)
        return None

    async def route(self, topic: str, deadline_ms: int) -> TopicRoute:
        """A route with queues to write. While its brokers have no master, this waits for one until the deadline."""
        route = await self._session.route(topic, create_queues=self._options.new_topic_queues)
        asked = False
        while not route.writable:
            left_ms = deadline_ms - monotonic_ms()
            if asked and not route.masterless:
                raise NoRoute(topic, ";".join(self._session.name_servers), "writable queue")
            if left_ms <= 0:
                raise NoMaster(topic, ", ".join(route.masterless))
            route = await self._session.renewed_route(topic, left_ms)
            asked = True
        return route

    def _after_failure(self, plan: RetryPlan, error: Exception, route: TopicRoute, queue: MessageQueue) -> Step:
        now_ms = monotonic_ms()
        address, pause_ms = route.master_of(queue.broker_name), avoid_ms(error, self._options.avoid_ms)
        if address is not None and pause_ms:
            self._choice.failed(address, now_ms + pause_ms)
        return plan.after(error, queue.broker_name, {each.broker_name for each in route.writable}, now_ms)


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    address = route.master_of(queue.broker_name)
    if address is None:
        raise NoMaster(queue.topic, queue.broker_name)
    return address
