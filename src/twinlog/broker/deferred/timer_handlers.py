"""Recalling a timer message before its time (370)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.broker.sends.put_errors import check_put
from twinlog.broker.sends.timer_rules import delete_key
from twinlog.net.errors import RequestRefused
from twinlog.store.log.append import Draft
from twinlog.wire import properties as names
from twinlog.wire.codes import UNSET_REMARK, RequestCode, ResponseCode
from twinlog.wire.properties import encode_properties
from twinlog.wire.values.recall_handle import parse_recall_handle

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

CANCEL_BODY = b"0"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    return {RequestCode.RECALL_MESSAGE: RecallHandler(ctx).handle}


class RecallHandler:
    """Parks a message that cancels another one, as Java does, so that the recall survives a restart."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def handle(self, request: Request) -> Command | None:
        ctx, now_ms = self._ctx, self._ctx.clock_ms()
        if not ctx.settings.recalls_allowed:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden", {})
        if not ctx.is_master:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, UNSET_REMARK, {})
        fields = request.fields or {}
        topic, handle = fields.get("topic", ""), parse_recall_handle(fields.get("recallHandle", ""))
        if topic not in ctx.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist", {})
        if handle is None or handle.topic != topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, handle is invalid", {})
        if handle.broker_name != ctx.settings.broker_name:
            remark = "recall failed, broker service not available"
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, remark, {})
        left_ms = handle.time_ms - now_ms
        if not 0 < left_ms <= ctx.conf.store.timer_delay_seconds_max * 1_000:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid", {})
        pairs = {
            names.TIMER_DELIVER_MS: str(handle.time_ms),
            names.TIMER_DEL_UNIQKEY: delete_key(topic, handle.unique_key),
            names.UNIQ_KEY: handle.unique_key,
        }
        draft = Draft(topic, 0, CANCEL_BODY, encode_properties(pairs), request.connection.peer, now_ms)
        appended = ctx.put(draft)
        check_put(ctx, appended)
        response = request.reply(fields={"msgId": handle.unique_key})
        # As for a send: a recall that was acknowledged must hold after a crash or a failover.
        return ctx.pending_sends.answer(request, response, appended.end, wait=True, on_answer=lambda: None)
