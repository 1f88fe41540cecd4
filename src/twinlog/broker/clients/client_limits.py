"""Limits of what one client may register: lengths of its id and of names, groups, and their subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.base.system_names import LONG_TOPIC_LENGTH_MAX
from twinlog.net.errors import RequestRefused
from twinlog.wire.codes import ResponseCode
from twinlog.wire.java_text import utf16_length

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Connection
    from twinlog.wire.bodies import HeartbeatData, SubscriptionData

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
    for consumer in data.consumer_data_set:
        count, most = len(consumer.subscription_data_set), settings.group_subscriptions_max
        if count > most:
            what = f"group {consumer.group_name} with {count} subscriptions"
            raise limits.refuse(_CODE, what, "maxSubscriptionsPerGroup", most, "use more groups, or raise it")
        length, most = sum(map(_length, consumer.subscription_data_set)), settings.subscription_length_max
        if length > most:
            what = f"group {consumer.group_name} with subscriptions of {length} characters"
            raise limits.refuse(_CODE, what, "maxSubscriptionLengthPerGroup", most, "subscribe to less, or raise it")


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


def _length(subscription: SubscriptionData) -> int:
    """Characters of text that are kept; each tag and each code counts for 8 more."""
    texts = (subscription.topic, subscription.sub_string, subscription.expression_type, *subscription.tags_set)
    return sum(map(len, texts)) + 8 * (len(subscription.tags_set) + len(subscription.code_set))
