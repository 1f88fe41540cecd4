"""Moving consumer groups: to a time or an offset (222), or to the offsets of another group (314)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

from twinlog.broker.topics.ensure import ensure_group
from twinlog.broker.topics.topic_limits import check_walk
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError, RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, ResetOffsetBody, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import CloneOffsetHeader, ResetOffsetHeader

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.bodies import TopicConfig
    from twinlog.wire.command import Command

log = get_logger(__name__)


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    resets = ResetHandlers(ctx)
    return {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
        RequestCode.CLONE_GROUP_OFFSET: resets.clone,
    }


class ResetHandlers:
    """Changes offsets of groups, online or not."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def reset(self, request: Request) -> Command:
        header = decode_fields(ResetOffsetHeader, request.fields)
        if self._ctx.settings.resets_on_server:
            return request.reply(body=encode_body(ResetOffsetBody(offset_table=self._reset_here(header))))
        return self._reset_at_clients(request, header)

    # -- on the broker -------------------------------------------------------------------------

    def _reset_here(self, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        """Set the offsets; the answer to each queue's next pull has the new one."""
        ctx, topic, group = self._ctx, header.topic or "", header.group or ""
        if not ctx.is_master:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = ctx.topics.get(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in ctx.groups:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        targets = self._targets(header, config)
        for queue_id, offset in targets.items():
            ctx.offsets.reset(group, topic, queue_id, offset, ctx.clock_ms())
        log.info("offsets reset", group=group, topic=topic, queues=len(targets))
        return {self._ctx.queue(topic, queue_id): offset for queue_id, offset in targets.items()}

    def _targets(self, header: ResetOffsetHeader, config: TopicConfig) -> dict[int, int]:
        topic, timestamp = config.topic_name, -1 if header.timestamp is None else header.timestamp
        if header.queue_id < 0:
            check_walk(topic, config.read_queue_nums)
            return {queue_id: self._at_time(topic, queue_id, timestamp) for queue_id in range(config.read_queue_nums)}
        if not self._ctx.has_queue(topic, header.queue_id):
            remark = f"topic {topic} has no queue {header.queue_id}; reset one of its queues"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if header.offset is None or header.offset == -1:
            return {header.queue_id: self._at_time(topic, header.queue_id, timestamp)}
        low, high = (
            self._ctx.store.min_offset(topic, header.queue_id),
            self._ctx.store.max_offset(topic, header.queue_id),
        )
        if not low <= header.offset <= high + 1:
            remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return {header.queue_id: header.offset}

    def _at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._ctx.store.max_offset(topic, queue_id)
        return self._ctx.store.search_offset(topic, queue_id, timestamp_ms)

    # -- at the clients, as 4.x does -----------------------------------------------------------

    def _reset_at_clients(self, request: Request, header: ResetOffsetHeader) -> Command:
        ctx, topic, group = self._ctx, header.topic or "", header.group or ""
        config = ctx.topics.get(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        check_walk(topic, config.write_queue_nums)
        timestamp = -1 if header.timestamp is None else header.timestamp
        table: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            committed = ctx.offsets.get(group, topic, queue_id)
            if committed is None:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            target = self._at_time(topic, queue_id, timestamp)
            table[self._ctx.queue(topic, queue_id)] = target if header.is_force else min(target, committed)
        online = ctx.clients.consumers.get(group)
        if online is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}"
            )
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = encode_body(ResetOffsetBody(offset_table=table))
        sent = _rows_for_cpp(table) if request.language == "CPP" else body
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp),
            "isForce": "true" if header.is_force else "false",
            "queueId": str(header.queue_id),
        }
        for client in list(online.clients.values()):
            with contextlib.suppress(NetError):
                connection = cast(Connection, client.connection)
                connection.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, sent)
        return request.reply(body=body)

    # -- copying -------------------------------------------------------------------------------

    def clone(self, request: Request) -> Command:
        header = decode_fields(CloneOffsetHeader, request.fields)
        ctx, source, target = self._ctx, header.src_group or "", header.dest_group or ""
        topics = [header.topic] if header.topic else sorted(ctx.offsets.topics_of(source))
        online = ctx.clients.consumers.get(source)
        if ensure_group(ctx, target) is None:  # Java: copies offsets to a group that does not exist
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target[:255]} does not exist")
        for topic in topics:
            if topic not in ctx.topics:
                continue
            if not header.offline and online is not None and topic not in online.subscriptions:
                continue
            ctx.offsets.clone(source, target, topic, ctx.clock_ms())
        return request.reply()


def _rows_for_cpp(table: dict[MessageQueue, int]) -> bytes:
    """The C++ client needs a list: it cannot read objects as keys."""
    rows = [
        {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
        for queue, offset in table.items()
    ]
    return encode_body({"offsetTable": rows})
