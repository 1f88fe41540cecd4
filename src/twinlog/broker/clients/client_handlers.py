"""Heartbeats, leaving, members of a group, and whether a subscription would be accepted (34, 35, 38, 46)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import cast

from twinlog.base.system_names import retry_topic
from twinlog.broker.clients.client_limits import check_heartbeat
from twinlog.broker.clients.client_table import Client, Notice
from twinlog.broker.context import BrokerContext
from twinlog.broker.pulls.filters.consumer_filters import FilterLimit
from twinlog.broker.pulls.filters.sql92 import FilterSyntaxError, compile_sql92
from twinlog.broker.topics.ensure import ensure_group, ensure_topic
from twinlog.net.connection import Connection, Handler, Request
from twinlog.net.errors import NetError, RequestRefused
from twinlog.security.signatures import ACCESS_KEY
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import CheckClientBody, ConsumerData, ConsumerIdList, HeartbeatData, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import ConsumerGroupHeader, UnregisterClientHeader
from twinlog.wire.values.filter_expression import is_tag_type
from twinlog.wire.values.topic_bits import READ_WRITE, UNIT_SUBSCRIPTION

log = get_logger(__name__)
FILTERS_KEY = "maxFilterLength"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    clients = ClientHandlers(ctx)
    return {
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
    }


class ClientHandlers:
    """Keeps the client table, and notifies consumers when their group changes."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        ctx.clients.on_group_gone.append(lambda group: ctx.consumer_filters.unregister(group, ctx.clock_ms()))

    def heartbeat(self, request: Request) -> Command:
        """Register the client's groups. Notices leave before the answer, as in Java."""
        data = decode_body(HeartbeatData, request.body)
        check_heartbeat(self._ctx, request.connection, data)
        now_ms = self._ctx.clock_ms()
        account = (request.fields or {}).get(ACCESS_KEY)
        version, language = request.version, request.language or "OTHER"
        client = Client(request.connection, data.client_id, language, version, account=account)
        sub_changed = data.heartbeat_fingerprint == 0  # always so for heartbeat V1
        refused: RequestRefused | None = None
        for consumer in data.consumer_data_set:
            try:
                sub_changed |= self._consumer(client, consumer, data, now_ms)
            except RequestRefused as refusal:  # one group too many; the client's others are served
                refused = refusal
        for producer in data.producer_data_set:
            self._ctx.clients.register_producer(client, producer.group_name, now_ms)
        if refused is not None:
            raise refused
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if sub_changed else "false"}
        return request.reply(fields=fields)

    def _consumer(self, client: Client, consumer: ConsumerData, data: HeartbeatData, now_ms: int) -> bool:
        """Register one group of a heartbeat; whether the client should send its subscriptions again."""
        ctx, name = self._ctx, consumer.group_name
        group = ensure_group(ctx, name)
        if group is None:
            log.warning(
                "heartbeat for a group that does not exist and is not created",
                group=name,
                client=client.client_id,
                peer=client.connection.peer_text,
            )
            return False
        ordered = any(ctx.topics.is_order_topic(sub.topic) for sub in consumer.subscription_data_set)
        sys_flag = UNIT_SUBSCRIPTION if consumer.unit_mode else 0
        ensure_topic(ctx, retry_topic(name), group.retry_queue_nums, READ_WRITE, sys_flag, ordered)
        with_subscriptions = not (data.heartbeat_fingerprint and data.without_sub)
        notify = group.notify_consumer_ids_changed_enable
        known = ctx.clients.consumers.get(name)
        sub_changed = ctx.clients.swap_fingerprint(name, data.heartbeat_fingerprint)
        if not with_subscriptions and (known is None or not known.subscriptions):
            sub_changed = True  # this broker was restarted since, and needs the client's subscriptions
        send_notices(
            [ctx.clients.register_consumer(client, consumer, now_ms, notify=notify, subscriptions=with_subscriptions)]
        )
        if with_subscriptions:
            limit = FilterLimit(ctx.settings.filters_length_max, self._without_filter)
            ctx.consumer_filters.register(name, consumer.subscription_data_set, now_ms, limit)
        return sub_changed

    def _without_filter(self, group: str, topic: str) -> None:
        """The pulls of this group are answered with FILTER_DATA_NOT_EXIST, as if its filter could not be read."""
        self._ctx.limits.count(FILTERS_KEY)
        limit = self._ctx.settings.filters_length_max
        log.warning("a filter is not kept", group=group, topic=topic, key=FILTERS_KEY, limit=limit)

    def unregister(self, request: Request) -> Command:
        header = decode_fields(UnregisterClientHeader, request.fields)
        if header.producer_group is not None:
            self._ctx.clients.unregister_producer(request.connection, header.producer_group)
        if header.consumer_group is not None:
            group = self._ctx.groups.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            send_notices(
                [self._ctx.clients.unregister_consumer(request.connection, header.consumer_group, notify=notify)]
            )
        return request.reply(fields={})

    def consumer_list(self, request: Request) -> Command:
        header = decode_fields(ConsumerGroupHeader, request.fields)
        group = self._ctx.clients.consumers.get(header.consumer_group or "")
        if group is None or not group.clients:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return request.reply(fields={}, body=encode_body(ConsumerIdList(consumer_id_list=group.client_ids())))

    def check_config(self, request: Request) -> Command:
        subscription = decode_body(CheckClientBody, request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return request.reply()
        kind = subscription.expression_type
        if not self._ctx.settings.property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if kind != "SQL92":
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"expression type {kind} is not SQL92 or TAG")
        try:
            compile_sql92(subscription.sub_string)
        except FilterSyntaxError as error:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return request.reply()


def connection_closed(ctx: BrokerContext, connection: Connection) -> None:
    """Remove a closed connection, and notify the consumers of its groups."""
    send_notices(ctx.clients.drop(connection))


def expire_clients(ctx: BrokerContext) -> int:
    """Close connections whose clients have sent no heartbeat for too long; how many. To be called every 10 s."""
    silent = ctx.clients.expire(ctx.clock_ms(), ctx.settings.client_expiry_ms)
    for peer in silent:
        connection = cast(Connection, peer)
        log.warning("closing a client without heartbeats", peer=connection.peer_text)
        connection.close("no heartbeat")
    return len(silent)


def send_notices(notices: Iterable[Notice | None]) -> None:
    """Send NOTIFY_CONSUMER_IDS_CHANGED to each connection; one that has just closed needs none."""
    for notice in notices:
        for peer in notice.connections if notice is not None else ():
            with contextlib.suppress(NetError):
                cast(Connection, peer).oneway(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": cast(Notice, notice).group}
                )
