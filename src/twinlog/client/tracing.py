"""RocketMQ's message trace: hooks that write down every send and every listener call, and the task that stores it.

Records leave every second, or when many wait. They are an aid for people: while the brokers cannot take them, new ones
are dropped and counted, and nothing else is affected.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

from twinlog.base.addresses import address_text
from twinlog.base.clock import wall_clock_ms
from twinlog.client.consuming.listener import Consuming
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.client.options import ClientOptions
from twinlog.client.routing.session import Session
from twinlog.client.sending.draft import SendContext, draft_message
from twinlog.client.sending.outgoing import DEFAULT_REGION, Outgoing, SendResult, SendStatus, body_bytes
from twinlog.client.sending.producer_options import ProducerOptions
from twinlog.client.sending.send_hooks import Sending
from twinlog.client.sending.sender import Sender
from twinlog.client.sending.trace_records import (
    CONSUME_FAILED,
    CONSUME_RAISED,
    CONSUMED,
    TraceRecord,
    end_transaction_record,
    pub_record,
    recall_record,
    sub_after_record,
    sub_before_record,
)
from twinlog.client.sending.trace_records import gather as gather_records
from twinlog.client.sending.transactions import Outcome
from twinlog.client.tasks import TaskSet, wait_for_event
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.errors import WireError
from twinlog.wire.message import Message
from twinlog.wire.values.message_id import UniqueIds, parse_offset_message_id

log = get_logger(__name__)
_FLUSH_MS = 1_000
_FLUSH_COUNT = 64  # records that leave before the time is over
_WAITING_MAX = 4_096
_MESSAGE_BYTES_MAX = 24_000  # lines and keys: keys are a property, and properties have 32,767 bytes at most
_STATES = {
    Outcome.COMMIT: "COMMIT_MESSAGE",
    Outcome.ROLLBACK: "ROLLBACK_MESSAGE",
    Outcome.UNKNOWN: "UNKNOW",
}
_counter = count(1)


class Tracer:
    """The traces of one producer or consumer, from `start` to `close`."""

    def __init__(self, name_servers: str, group: str, kind: str, options: ClientOptions | None, topic: str) -> None:
        self._group, self._topic = group, topic
        context = SendContext(f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(_counter)}")
        self._session = Session(name_servers, options)
        self._context = context
        self._sender = Sender(self._session, ProducerOptions(send_timeout_ms=5_000), context)
        self._ids = UniqueIds(self._session.client_id.partition("@")[0])
        self._waiting: deque[TraceRecord] = deque()
        self._dropped = 0
        self._closing = False
        self._lock = threading.Lock()  # listener calls of plain functions are in threads
        self._wanted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = TaskSet()

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._session.start()
        self._closing = False
        self._tasks.keep(self._flush_until_closed, "store traces")

    async def close(self) -> None:
        """Store what waits."""
        self._closing = True
        self._wanted.set()
        await self._tasks.join()
        await self._session.close()

    # -- what is written down ------------------------------------------------------------------

    @contextmanager
    def sending(self, call: Sending) -> Iterator[None]:
        """A hook for sends."""
        started_ms = wall_clock_ms()
        yield
        sent = call.result
        if sent is None or not sent.trace_on or call.messages[0].topic == self._topic:
            return
        spent_ms = wall_clock_ms() - started_ms
        ids, places = sent.message_id.split(","), sent.offset_message_id.split(",")
        if len(ids) != len(call.messages):  # one id, with a comma in it
            ids = [sent.message_id]
        for i, (message, message_id) in enumerate(zip(call.messages, ids, strict=False)):
            self._append(
                pub_record(
                    started_ms=started_ms,
                    region=sent.region_id,
                    group=self._group,
                    topic=message.topic,
                    message_id=message_id,
                    tags=message.tags,
                    keys=message.keys,
                    store_host=self.store_host(sent),
                    body_bytes=len(body_bytes(message.body)),
                    spent_ms=spent_ms,
                    kind=call.kind.value,
                    offset_message_id=places[i] if len(places) == len(ids) else sent.offset_message_id,
                    ok=sent.status is SendStatus.OK,
                )
            )

    @contextmanager
    def consuming(self, call: Consuming) -> Iterator[None]:
        """A hook for listener calls."""
        traced = [message for message in call.messages if message.properties.get(names.TRACE_ON) != "false"]
        started_ms, request_id = wall_clock_ms(), self._new_id()
        for message in traced:
            self._append(
                sub_before_record(
                    started_ms=started_ms,
                    region=_region(message),
                    group=self._group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.reconsume_times,
                    keys=message.keys,
                )
            )
        yield
        ended_ms = wall_clock_ms()
        code = CONSUMED if call.ok else CONSUME_RAISED if call.error is not None else CONSUME_FAILED
        for message in traced:
            self._append(
                sub_after_record(
                    request_id=request_id,
                    message_id=message.message_id,
                    spent_ms=(ended_ms - started_ms) // len(call.messages),
                    ok=call.ok,
                    keys=message.keys,
                    code=code,
                    ended_ms=ended_ms,
                    group=self._group,
                )
            )

    def transaction_ended(self, message: Outgoing, sent: SendResult, outcome: Outcome) -> None:
        if sent.trace_on:
            self._append(
                end_transaction_record(
                    ended_ms=wall_clock_ms(),
                    region=sent.region_id,
                    group=self._group,
                    topic=message.topic,
                    message_id=sent.message_id,
                    tags=message.tags,
                    keys=message.keys,
                    store_host=self.store_host(sent),
                    transaction_id=sent.transaction_id or "",
                    state=_STATES[outcome],
                    from_check=False,
                )
            )

    def recalled(self, topic: str, message_id: str, *, ok: bool) -> None:
        self._append(
            recall_record(
                at_ms=wall_clock_ms(),
                region=DEFAULT_REGION,
                group=self._group,
                topic=topic,
                message_id=message_id,
                ok=ok,
            )
        )

    def store_host(self, sent: SendResult) -> str:
        """The address of the broker that stored a message."""
        text = sent.offset_message_id.partition(",")[0]
        if not text:
            return ""
        try:
            host, port, _ = parse_offset_message_id(text)
        except (WireError, ValueError):
            return ""
        return address_text(host, port)

    # -- storing it ----------------------------------------------------------------------------

    def _append(self, record: TraceRecord) -> None:
        with self._lock:
            if len(self._waiting) >= _WAITING_MAX:
                self._dropped += 1
                return
            self._waiting.append(record)
            is_full = len(self._waiting) == _FLUSH_COUNT
        if is_full and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def _flush_until_closed(self) -> None:
        while not self._closing:
            await wait_for_event(self._wanted, _FLUSH_MS)
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            with self._lock:
                taken = list(islice(self._waiting, _FLUSH_COUNT))
                for _ in taken:
                    self._waiting.popleft()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                log.warning("traces were dropped: the brokers do not take them fast enough", records=dropped)
            for lines, keys in gather_records(taken, _MESSAGE_BYTES_MAX):
                if not await self._is_stored(Outgoing(self._topic, lines, keys=keys)):
                    return

    async def _is_stored(self, message: Outgoing) -> bool:
        now_ms = wall_clock_ms()
        try:
            draft = draft_message(message, self._new_id(), self._context, now_ms)
            await self._sender.store(draft, None, self._sender.deadline_ms())
        except REQUEST_FAILURES as error:
            log.warning("traces were not stored", topic=self._topic, error=str(error))
            return False
        return True

    def _new_id(self) -> str:
        with self._lock:
            return self._ids.next(wall_clock_ms())


def _region(message: Message) -> str:
    return message.properties.get(names.MSG_REGION) or DEFAULT_REGION
