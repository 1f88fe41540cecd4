"""What one client may register: the length of its id, its groups, and their subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.wire.codes import ResponseCode
from twinlog.wire.java_text import utf16_length

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Connection
    from twinlog.wire.bodies import HeartbeatData


def check_heartbeat(ctx: BrokerContext, connection: Connection, data: HeartbeatData) -> None:
    """Refuse a heartbeat that would register too much, before any of it is registered."""
    settings, limits, code = ctx.settings, ctx.limits, ResponseCode.INVALID_PARAMETER
    length, most = utf16_length(data.client_id), settings.client_id_length_max
    if length > most:
        what = f"a client id of {length} characters ({data.client_id[:40]}...)"
        raise limits.refuse(code, what, "maxClientIdLength", most, "use a shorter instanceName")
    consumers = {one.group_name for one in data.consumer_data_set}
    producers = {one.group_name for one in data.producer_data_set}
    count, most = ctx.clients.groups_with(connection, consumers, producers), settings.client_groups_max
    if count > most:
        what = f"client {data.client_id} in {count} groups on one connection"
        raise limits.refuse(code, what, "maxGroupsPerClient", most, "use more clients, or raise it")
    for consumer in data.consumer_data_set:
        count, most = len(consumer.subscription_data_set), settings.group_subscriptions_max
        if count > most:
            what = f"group {consumer.group_name[:255]} with {count} subscriptions"
            raise limits.refuse(code, what, "maxSubscriptionsPerGroup", most, "use more groups, or raise it")
