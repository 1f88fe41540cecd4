"""What clients and operators read from the route table: routes, clusters, lists of topics."""

from __future__ import annotations

from collections.abc import Callable

from twinlog.nameserver.route_table import RouteTable
from twinlog.wire.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from twinlog.wire.codes import MASTER_ID
from twinlog.wire.values.topic_bits import UNIT, UNIT_SUBSCRIPTION, WRITE

SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def find_route(table: RouteTable, topic: str, *, acting_masters: bool = False) -> TopicRouteData | None:
    """Brokers and queues of a topic; None when no broker has it."""
    queues = table.topics.get(topic, {})
    brokers = [_copy(table.brokers[name]) for name in queues if name in table.brokers]
    if not brokers:
        return None
    if acting_masters and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX):
        for broker in brokers:
            _present_acting_master(broker, queues[broker.broker_name])
    keys = [(broker.cluster, address) for broker in brokers for address in broker.broker_addrs.values()]
    return TopicRouteData(
        queue_datas=list(queues.values()),
        broker_datas=brokers,
        filter_server_table={key[1]: table.filter_servers[key] for key in keys if key in table.filter_servers},
        topic_queue_mapping_by_broker=table.mappings.get(topic),
    )


def keep_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Only the brokers of a zone, and those without a master, which must be readable from everywhere."""
    kept = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in kept}
    dropped = [broker for broker in route.broker_datas if broker.broker_name not in names]
    dropped_names = {broker.broker_name for broker in dropped}
    addresses = {address for broker in dropped for address in broker.broker_addrs.values()}
    return TopicRouteData(
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in dropped_names],
        broker_datas=kept,
        filter_server_table={a: servers for a, servers in route.filter_server_table.items() if a not in addresses},
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def cluster_info(table: RouteTable) -> ClusterInfo:
    return ClusterInfo(
        broker_addr_table=table.brokers,
        cluster_addr_table={cluster: list(names) for cluster, names in table.clusters.items()},
    )


# -- lists of topics ---------------------------------------------------------------------------------


def topics_of_cluster(table: RouteTable, cluster: str) -> list[str]:
    names = table.clusters.get(cluster, {}).keys()
    return [topic for topic, queues in table.topics.items() if names & queues.keys()]


def system_topics(table: RouteTable) -> tuple[list[str], str | None]:
    """Cluster and broker names, which are topics too, and the address of some broker that knows more."""
    topics = [name for cluster, names in table.clusters.items() for name in (cluster, *names)]
    addresses = (address for broker in table.brokers.values() for address in broker.broker_addrs.values())
    return topics, next(addresses, None)


def unit_topics(table: RouteTable) -> list[str]:
    return _topics_flagged(table, lambda flag: bool(flag & UNIT))


def unit_subscription_topics(table: RouteTable) -> list[str]:
    return _topics_flagged(table, lambda flag: bool(flag & UNIT_SUBSCRIPTION))


def unit_subscription_only_topics(table: RouteTable) -> list[str]:
    return _topics_flagged(table, lambda flag: flag & (UNIT | UNIT_SUBSCRIPTION) == UNIT_SUBSCRIPTION)


def _topics_flagged(table: RouteTable, matches: Callable[[int], bool]) -> list[str]:
    return [topic for topic, queues in table.topics.items() if matches(next(iter(queues.values())).topic_sys_flag)]


# -- inside ------------------------------------------------------------------------------------------


def _present_acting_master(broker: BrokerData, queue: QueueData) -> None:
    addresses = broker.broker_addrs
    if broker.enable_acting_master and MASTER_ID not in addresses and not queue.perm & WRITE:
        acting = min(addresses)
        others = {broker_id: address for broker_id, address in addresses.items() if broker_id != acting}
        broker.broker_addrs = {MASTER_ID: addresses[acting], **others}


def _copy(broker: BrokerData) -> BrokerData:
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_addrs=dict(sorted(broker.broker_addrs.items())),
        enable_acting_master=broker.enable_acting_master,
        zone_name=broker.zone_name,
    )
