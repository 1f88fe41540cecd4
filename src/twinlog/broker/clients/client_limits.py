"""Limits of what one client may register, and all of them together: ids, names, groups, and their subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.base.system_names import LONG_TOPIC_LENGTH_MAX
from twinlog.broker.clients.client_table import subscription_length
from twinlog.net.errors import RequestRefused
from twinlog.wire.codes import ResponseCode
from twinlog.wire.java_text import utf16_length

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Connection
    from twinlog.wire.bodies import HeartbeatData

NAME_LENGTH_MAX = LONG_TOPIC_LENGTH_MAX
_CODE = ResponseCode.INVALID_PARAMETER


def check_heartbeat(ctx: BrokerContext, connection: Connection, data: HeartbeatData) -> None:
    """Refuse a heartbeat that would register too much, before any of it is registered."""
    settings, limits = ctx.settings, ctx.limits
    check_client_id(ctx, data.client_id)
    consumers = {one.group_name for one in data.consumer_data_set}
    producers = {one.group_name for one in data.producer_data_set}
    for group in (*consumers, *producers):
        check_name("group", group)
    count, most = ctx.clients.groups_with(connection, consumers, producers), settings.client_groups_max
    if count > most:
        what = f"client {data.client_id} in {count} groups on one connection"
        raise limits.refuse(_CODE, what, "maxGroupsPerClient", most, "use more clients, or raise it")
    count, most = ctx.clients.registrations + count - ctx.clients.groups_of(connection), settings.registrations_max
    if count > most:
        what = f"client {data.client_id} would make it {count} places in groups of this broker"
        raise limits.refuse(_CODE, what, "maxClientRegistrations", most, "close some clients, or raise it")
    _check_subscriptions(ctx, data)


def _check_subscriptions(ctx: BrokerContext, data: HeartbeatData) -> None:
    settings, limits, grows = ctx.settings, ctx.limits, 0
    for consumer in data.consumer_data_set:
        count, most = len(consumer.subscription_data_set), settings.group_subscriptions_max
        if count > most:
            what = f"group {consumer.group_name} with {count} subscriptions"
            raise limits.refuse(_CODE, what, "maxSubscriptionsPerGroup", most, "use more groups, or raise it")
        length, most = sum(map(subscription_length, consumer.subscription_data_set)), settings.subscription_length_max
        if length > most:
            what = f"group {consumer.group_name} with subscriptions of {length} characters"
            raise limits.refuse(_CODE, what, "maxSubscriptionLengthPerGroup", most, "subscribe to less, or raise it")
        known = ctx.clients.consumers.get(consumer.group_name)
        grows += length - (known.subscription_length if known is not None else 0)
    length, most = ctx.clients.subscription_length + grows, settings.subscriptions_length_max
    if grows > 0 and length > most:
        what = f"client {data.client_id} would make it {length} characters of subscriptions on this broker"
        raise limits.refuse(_CODE, what, "maxSubscriptionLength", most, "subscribe to less, or raise it")


def check_client_id(ctx: BrokerContext, client_id: str) -> None:
    length, most = utf16_length(client_id), ctx.settings.client_id_length_max
    if length > most:
        what = f"a client id of {length} characters ({client_id[:40]}...)"
        raise ctx.limits.refuse(_CODE, what, "maxClientIdLength", most, "use a shorter instanceName")


def check_name(what: str, name: str) -> None:
    """Refuse a name that is too long for any group, topic or broker; it need not exist."""
    if len(name) > NAME_LENGTH_MAX:
        remark = f"a {what} name of {len(name)} characters ({name[:40]}...), at most {NAME_LENGTH_MAX} are allowed"
        raise RequestRefused(_CODE, remark)
