"""Request and reply (324, 325): a reply goes straight to the connection that waits for it (326)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twinlog.broker.sends.put_errors import check_put
from twinlog.broker.sends.send import count_puts, new_draft
from twinlog.broker.sends.send_checks import check_send, choose_queue, read_header, region_and_trace
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError, RequestRefused
from twinlog.wire import properties as names
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.values.message_id import offset_message_id

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command
    from twinlog.wire.headers import SendHeader, SendHeaderV2

PUSH_TIMEOUT_MS = 10_000


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    reply = ReplyHandler(ctx)
    return {RequestCode.SEND_REPLY_MESSAGE: reply.handle, RequestCode.SEND_REPLY_MESSAGE_V2: reply.handle}


class ReplyHandler:
    """Pushes a reply to its requester, and stores it as a message too if `storeReplyMessageEnable` is set."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    async def handle(self, request: Request) -> Command:
        ctx, settings = self._ctx, self._ctx.settings
        if not ctx.is_master:
            return request.reply(ResponseCode.SYSTEM_BUSY, ctx.busy_remark)
        fixed_fields = region_and_trace(settings)
        try:
            header = read_header(request)
            config = check_send(ctx, request, header)
            queue_id = choose_queue(header.queue_id or 0, config)
            pairs = {**decode_properties(header.properties or ""), **fixed_fields, names.CLUSTER: settings.cluster_name}
            problem = await self._push(request, header, queue_id, dict(pairs))
            fields = {**fixed_fields, "msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
            if settings.reply_messages_stored:
                fields |= self._store(request, header, queue_id, pairs)
        except RequestRefused as refused:
            return request.reply(refused.code, refused.remark, {**fixed_fields, **(refused.fields or {})})
        if problem is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, problem, fields)
        return request.reply(fields=fields)

    async def _push(
        self, request: Request, header: SendHeader | SendHeaderV2, queue_id: int, pairs: dict[str, str]
    ) -> str | None:
        """Push the reply to its requester; returns the problem, or None."""
        settings, now_ms = self._ctx.settings, self._ctx.wall_ms()
        requester = pairs.get(names.REPLY_TO_CLIENT)
        if requester is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client = self._ctx.clients.find_producer(requester)
        if client is None:
            return f"push reply message fail, channel of <{requester}> not found."
        pairs[names.PUSH_REPLY_TIME] = str(now_ms)
        fields = {
            "bornHost": request.connection.peer_text,
            "storeHost": settings.address,
            "storeTimestamp": str(now_ms),
            "producerGroup": header.producer_group or "",
            "topic": header.topic or "",
            "defaultTopic": header.default_topic or "",
            "defaultTopicQueueNums": str(header.default_topic_queue_nums or 0),
            "queueId": str(queue_id),
            "sysFlag": str(header.sys_flag or 0),
            "bornTimestamp": str(header.born_timestamp or 0),
            "flag": str(header.flag or 0),
            "properties": encode_properties(pairs).decode(),
            "reconsumeTimes": str(header.reconsume_times or 0),
            "unitMode": "true" if header.unit_mode else "false",
        }
        try:
            answer = await cast(Connection, client.connection).request(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body, PUSH_TIMEOUT_MS
            )
        except NetError as error:
            return f"push reply message to {requester} fail: {error}"
        return (
            None if answer.code == ResponseCode.SUCCESS else f"push reply message to {requester} fail: {answer.remark}"
        )

    def _store(
        self, request: Request, header: SendHeader | SendHeaderV2, queue_id: int, pairs: dict[str, str]
    ) -> dict[str, str]:
        draft = new_draft(request, header, header.topic or "", queue_id)
        draft.properties = encode_properties(pairs)
        stored = self._ctx.put(draft)
        check_put(self._ctx, stored)
        count_puts(self._ctx, draft.topic, 1, stored.size)
        message_id = offset_message_id(*self._ctx.settings.record_host, stored.physical_offset)
        return {"msgId": message_id, "queueOffset": str(stored.queue_offset)}
