"""Sends of every kind: single messages and batches, retries, dead letters, transactions, delays.

This is the definition; `send_fast` repeats its usual case and leaves all other sends to it.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.system_names import RETRY_PREFIX, TIMER_TOPIC, dlq_topic
from twinlog.broker.sends.put_errors import check_put
from twinlog.broker.sends.send_checks import (
    TOPIC_LENGTH_IN_BATCH_MAX,
    check_send,
    choose_queue,
    read_header,
    region_and_trace,
    retries_max,
)
from twinlog.broker.sends.timer_rules import recall_handle
from twinlog.broker.topics.ensure import ensure_group, ensure_topic
from twinlog.net.errors import RequestRefused
from twinlog.store.log.append import Appended, Draft, PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.telemetry.histograms import LARGE_BYTES
from twinlog.wire import properties as names
from twinlog.wire.batch import BatchElement, decode_batch
from twinlog.wire.codes import FAQ_REMARK, RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.values.message_id import offset_message_id
from twinlog.wire.values.sys_flag import INNER_BATCH, MULTI_TAGS, NEED_UNWRAP, TRANSACTION_MASK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.bodies import TopicConfig
    from twinlog.wire.command import Command
    from twinlog.wire.headers import SendHeader, SendHeaderV2

    Header = SendHeader | SendHeaderV2


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    send = SendHandler(ctx)
    codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    return dict.fromkeys(codes, send.handle)


class SendHandler:
    """Answers codes 10, 310 and 320."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def handle(self, request: Request) -> Command | Awaitable[Command | None] | None:
        ctx = self._ctx
        if not ctx.is_master:
            return request.reply(ResponseCode.SYSTEM_BUSY, ctx.busy_remark)
        fixed_fields = region_and_trace(ctx.settings)
        edition = ctx.topics.edition
        try:
            answer = self._send(request, fixed_fields)
            if ctx.topics.edition != edition and answer is not None and ctx.wait_until_announced is not None:
                return self._once_announced(answer, ctx.wait_until_announced)
            return answer
        except RequestRefused as refused:
            ctx.stats.failed_put()
            return request.reply(refused.code, refused.remark, {**fixed_fields, **(refused.fields or {})})
        except WireError as error:
            ctx.stats.failed_put()
            return request.reply(ResponseCode.MESSAGE_ILLEGAL, str(error), fixed_fields)

    async def _once_announced(self, answer: Command, wait_until_announced: Callable[[], Awaitable[None]]) -> Command:
        """The answer to a send that created a topic. Java: it leaves after the name servers know the topic."""
        await wait_until_announced()
        return answer

    def _send(self, request: Request, fixed_fields: dict[str, str]) -> Command | None:
        header = read_header(request)
        config = check_send(self._ctx, request, header)
        if request.body is None:
            remark = "NullPointerException: a message has no body; send at least one byte"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if header.batch:
            return self._send_batch(request, header, config, fixed_fields)
        return self._send_one(request, header, config, fixed_fields)

    # -- one message ---------------------------------------------------------------------------

    def _send_one(
        self, request: Request, header: Header, config: TopicConfig, fixed_fields: dict[str, str]
    ) -> Command | None:
        ctx, started = self._ctx, perf_counter()
        assert header.queue_id is not None and header.topic is not None
        queue_id = choose_queue(header.queue_id, config)
        draft = new_draft(request, header, header.topic, queue_id)
        pairs = decode_properties(header.properties or "")
        if draft.topic.startswith(RETRY_PREFIX):
            config = self._retry_or_dead_letter(request, header, config, draft, pairs)
        if config.topic_filter_type == "MULTI_TAG":
            draft.sys_flag |= MULTI_TAGS
        pairs.pop(names.POP_CK, None)
        pairs.update(fixed_fields)
        pairs[names.CLUSTER] = ctx.settings.cluster_name
        if not pairs.get(names.UNIQ_KEY):
            pairs[names.UNIQ_KEY] = ctx.unique_ids.next(ctx.clock_ms())
        if config.attributes.get("cleanup.policy") == "COMPACTION" and not pairs.get(names.KEYS, "").strip():
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        if self._is_transaction(draft, pairs):
            self._prepare(draft, pairs)
            draft.properties = encode_properties(pairs)
        else:
            draft.properties = encode_properties(pairs)
            ctx.redirect(draft, pairs)
        appended = ctx.store.append(draft)
        check_put(ctx, appended)
        fields = {
            **fixed_fields,
            "msgId": self._message_id(appended.physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(appended.queue_offset),
            "transactionId": pairs[names.UNIQ_KEY],
        }
        if draft.topic == TIMER_TOPIC and (handle := recall_handle(ctx.settings.broker_name, pairs)):
            fields["recallHandle"] = handle
        count_puts(ctx, header.topic, 1, appended.size)
        return self._answer(request, request.reply(fields=fields), appended, pairs, 1, started)

    def _retry_or_dead_letter(
        self, request: Request, header: Header, config: TopicConfig, draft: Draft, pairs: dict[str, str]
    ) -> TopicConfig:
        """A consumer's own retry. After too many retries, or while its group locks queues, it becomes a dead letter."""
        ctx = self._ctx
        group = draft.topic[len(RETRY_PREFIX) :]
        settings = ensure_group(ctx, group)
        if settings is None:
            remark = f"subscription group not exist, {group} {FAQ_REMARK}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = retries_max(request.version, header.max_reconsume_times, settings)
        if (header.reconsume_times or 0) <= limit and not ctx.locks.holds_any(group, ctx.clock_ms()):
            return config
        pairs[names.DELAY] = "-1"
        draft.topic, draft.queue_id = dlq_topic(group), 0
        return ensure_topic(ctx, draft.topic, 1)

    def _is_transaction(self, draft: Draft, pairs: Mapping[str, str]) -> bool:
        if pairs.get(names.TRAN_MSG, "").lower() != "true":
            return False
        return not (draft.reconsume_times > 0 and _positive(pairs.get(names.DELAY)))

    def _prepare(self, draft: Draft, pairs: dict[str, str]) -> None:
        ctx = self._ctx
        if ctx.settings.transactions_rejected or ctx.prepare is None:
            remark = f"the broker[{ctx.settings.broker_ip1}] sending transaction message is forbidden"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
        ctx.prepare(draft, pairs)

    # -- batches -------------------------------------------------------------------------------

    def _send_batch(
        self, request: Request, header: Header, config: TopicConfig, fixed_fields: dict[str, str]
    ) -> Command | None:
        ctx, started = self._ctx, perf_counter()
        topic = header.topic
        assert topic is not None and header.queue_id is not None and request.body is not None
        if len(topic) > TOPIC_LENGTH_IN_BATCH_MAX:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}")
        if topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic}"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        queue_id = choose_queue(header.queue_id, config)
        draft = new_draft(request, header, topic, queue_id)
        if config.topic_filter_type == "MULTI_TAG":
            draft.sys_flag |= MULTI_TAGS
        pairs = {**decode_properties(header.properties or ""), **fixed_fields, names.CLUSTER: ctx.settings.cluster_name}
        pairs.pop(names.POP_CK, None)
        if draft.sys_flag & TRANSACTION_MASK or _positive(pairs.get(names.DELAY)):
            check_put(ctx, Appended(PutStatus.MESSAGE_ILLEGAL))
        fields = {**fixed_fields, "queueId": str(queue_id)}
        uniq_key = pairs.get(names.UNIQ_KEY)
        if config.attributes.get("queue.type") == "BatchCQ" and uniq_key:
            draft.sys_flag |= NEED_UNWRAP | INNER_BATCH
            draft.inner_count = count = len(self._elements(request.body))
            draft.properties = encode_properties(pairs)
            appended = ctx.store.append(draft)
            check_put(ctx, appended)
            fields["msgId"] = self._message_id(appended.physical_offset)
            fields["batchUniqId"] = uniq_key
        else:
            self._check_batch_size(len(request.body))
            appended = self._append_ordinary(draft, request.body) or self._append_elements(draft, request.body)
            check_put(ctx, appended)
            count = len(appended.physical_offsets)
            host = self._message_id(0)[:-16]
            fields["msgId"] = ",".join([f"{host}{offset:016X}" for offset in appended.physical_offsets])
        fields["queueOffset"] = str(appended.queue_offset)
        if uniq_key:
            fields["transactionId"] = uniq_key
        count_puts(ctx, topic, count, appended.size)
        return self._answer(request, request.reply(fields=fields), appended, pairs, count, started)

    def _check_batch_size(self, size: int) -> None:
        """Java: all elements together may be as large as one body. 5.x answers with its exception, 4.x with code 13."""
        bytes_max = self._ctx.conf.store.message_bytes_max
        if size > bytes_max:
            remark = (
                f"RuntimeException: message body size exceeded: a batch has {size} bytes, and maxMessageSize is "
                f"{bytes_max}; send smaller batches"
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)

    def _append_ordinary(self, draft: Draft, batch: bytes) -> Appended | None:
        store = self._ctx.store
        if type(store) is not MessageStore:  # a plug-in around the store sees every message, one by one
            return None
        return store.append_elements(
            draft.born_host,
            draft.topic,
            draft.queue_id,
            batch,
            draft.born_timestamp,
            draft.sys_flag,
            draft.reconsume_times,
        )

    def _append_elements(self, draft: Draft, batch: bytes) -> Appended:
        return self._ctx.store.append_batch(
            [
                msgspec.structs.replace(draft, flag=one.flag, body=one.body, properties=one.properties)
                for one in self._elements(batch)
            ]
        )

    def _elements(self, batch: bytes) -> list[BatchElement]:
        elements = decode_batch(batch)
        if not elements:
            check_put(self._ctx, Appended(PutStatus.MESSAGE_ILLEGAL))
        return elements

    # -- shared --------------------------------------------------------------------------------

    def _message_id(self, physical_offset: int) -> str:
        return offset_message_id(*self._ctx.settings.record_host, physical_offset)

    def _answer(
        self,
        request: Request,
        response: Command,
        appended: Appended,
        pairs: Mapping[str, str],
        count: int,
        started: float,
    ) -> Command | None:
        """The response, if it may leave now; None when it waits for flush or replicas."""
        stats, wait = self._ctx.stats, pairs.get(names.WAIT, "true").lower() == "true"

        def took() -> None:
            seconds = perf_counter() - started
            stats.put_times.took(seconds, count)
            stats.rpc.row(request.code).took(seconds)

        return self._ctx.pending_sends.answer(request, response, appended.end, wait=wait, on_answer=took)


def new_draft(request: Request, header: Header, topic: str, queue_id: int) -> Draft:
    """The message of a send, without its properties."""
    return Draft(
        topic,
        queue_id,
        request.body or b"",
        born_host=request.connection.peer,
        born_timestamp=header.born_timestamp or 0,
        flag=header.flag or 0,
        sys_flag=header.sys_flag or 0,
        reconsume_times=header.reconsume_times or 0,
    )


def count_puts(ctx: BrokerContext, topic: str, count: int, size: int) -> None:
    """Add stored messages to the statistics of a topic."""
    counter = ctx.stats.puts(topic)
    counter.count += count
    counter.bytes += size
    if size > count * LARGE_BYTES:
        counter.add_large(-(-size // count), count)


def _positive(text: str | None) -> bool:
    try:
        return text is not None and int(text) > 0
    except ValueError:
        return False
