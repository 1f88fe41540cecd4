"""Topics."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from twinlog.base.system_names import is_retry_or_dlq
from twinlog.cli.admin.command import broker_or_cluster, command, config_list, flag, masters, need, opt
from twinlog.cli.shared.explain import did_you_mean
from twinlog.cli.shared.option_values import boolean, natural, permission
from twinlog.cli.shared.report import Report, plain, table, text_report, when
from twinlog.client import Admin, BadArgument, ClientError, NoRoute
from twinlog.client.admin.topics import ORDER_NAMESPACE
from twinlog.client.consuming.rebalance import allocate_averagely
from twinlog.wire.bodies import TopicConfig
from twinlog.wire.values.topic_bits import UNIT, UNIT_SUBSCRIPTION, permission_text

TOPIC = need("t", "topic", "topic name")


@command(
    "updateTopic",
    "Create or change a topic",
    TOPIC,
    *broker_or_cluster(),
    opt("r", "readQueueNums", "queues to read", kind=natural, default=8),
    opt("w", "writeQueueNums", "queues to write", kind=natural, default=8),
    opt("p", "perm", "2 write, 4 read, 6 both", kind=permission, default=6),
    opt("o", "order", "keep the queue list of an order topic at the name servers", kind=boolean, default=False),
    opt("u", "unit", "unit topic", kind=boolean, default=False),
    opt("s", "hasUnitSub", "has a unit subscription", kind=boolean, default=False),
    opt("a", "attributes", "+key=value,-key", default=""),
)
async def update_topic(admin: Admin, args: Namespace) -> Report:
    config = TopicConfig(
        topic_name=args.topic,
        read_queue_nums=args.readQueueNums,
        write_queue_nums=args.writeQueueNums,
        perm=args.perm,
        order=args.order,
        topic_sys_flag=(UNIT if args.unit else 0) | (UNIT_SUBSCRIPTION if args.hasUnitSub else 0),
    )
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.save_topic(address, config, attributes=args.attributes)
    lines = [f"create topic to {address} success." for address in addresses]
    if args.order:
        order = await _order_conf(admin, addresses, args.writeQueueNums)
        await admin.put_kv(ORDER_NAMESPACE, args.topic, order)
        lines.append(f"set order conf of {args.topic} to {order}")
    return text_report(*lines, _config_text(config), data={"brokers": addresses, "topicConfig": plain(config)})


@command(
    "updateTopicList",
    "Create or change many topics",
    *broker_or_cluster(),
    need("f", "filename", "JSON file: a list of topic configurations", kind=Path),
)
async def update_topics(admin: Admin, args: Namespace) -> Report:
    configs = config_list(args.filename, TopicConfig, "topic")
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.save_topics(address, configs)
    return text_report(*(f"submit batch of {len(configs)} topics to {address} success." for address in addresses))


@command("deleteTopic", "Delete a topic from brokers and name servers", TOPIC, need("c", "clusterName", "cluster"))
async def delete_topic(admin: Admin, args: Namespace) -> Report:
    await _check_exists(admin, args.topic, args.clusterName)
    await admin.delete_topic(args.topic, args.clusterName)
    return text_report(
        f"delete topic [{args.topic}] from cluster [{args.clusterName}] success.",
        f"delete topic [{args.topic}] from NameServer success.",
    )


@command(
    "updateTopicPerm",
    "Change a topic's permission",
    TOPIC,
    *broker_or_cluster(),
    need("p", "perm", "2 write, 4 read, 6 both", kind=permission),
)
async def update_topic_perm(admin: Admin, args: Namespace) -> Report:
    lines = []
    for address in await masters(admin, args):
        config = await admin.topic_config(address, args.topic)
        before, config.perm = config.perm, args.perm
        await admin.save_topic(address, config)
        lines.append(f"update topic perm from {before} to {args.perm} in {address} success.")
    return text_report(*lines)


@command("topicList", "List all topics", flag("c", "clusterModel", "with their clusters and consumer groups"))
async def topic_list(admin: Admin, args: Namespace) -> Report:
    topics = await admin.topics()
    if not args.clusterModel:
        return text_report(*topics, data=topics)
    rows = []
    for topic in topics:
        if is_retry_or_dlq(topic):
            continue
        try:
            clusters, groups = await admin.clusters_of(topic), await admin.groups_of(topic)
        except ClientError:
            continue  # deleted meanwhile
        rows += [(cluster, topic, group) for cluster in clusters for group in groups or [""]]
    return table("Cluster Name,Topic,Consumer Group", rows)


@command("topicRoute", "Show a topic's brokers and queues", TOPIC, flag("l", "list", "as a list"))
async def topic_route(admin: Admin, args: Namespace) -> Report:
    route = await admin.route_data(args.topic)
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    rows = []
    for broker in sorted(route.broker_datas, key=lambda b: b.broker_name):
        queue = queues.get(broker.broker_name)
        addresses = " ".join(f"{i}={address}" for i, address in sorted(broker.broker_addrs.items()))
        counts = (queue.read_queue_nums, queue.write_queue_nums, queue.perm) if queue else ("", "", "")
        rows.append((broker.cluster, broker.broker_name, addresses, *counts))
    columns = "ClusterName,BrokerName,BrokerAddrs,ReadQueue,WriteQueue,Perm"
    return table(columns, rows, data=plain(route))


@command(
    "topicStatus", "Show the offsets of a topic's queues", TOPIC, opt("c", "cluster", "only brokers of this cluster")
)
async def topic_status(admin: Admin, args: Namespace) -> Report:
    stats = await admin.topic_stats(args.topic)
    if args.cluster:
        known = (await admin.session.route(args.topic)).clusters
        stats = {queue: row for queue, row in stats.items() if known.get(queue.broker_name) == args.cluster}
    rows = [
        (queue.broker_name, queue.queue_id, row.min_offset, row.max_offset, when(row.last_update_timestamp))
        for queue, row in stats.items()
    ]
    return table("Broker Name,QID,Min Offset,Max Offset,Last Updated", rows)


@command("topicClusterList", "List the clusters that have a topic", TOPIC)
async def topic_clusters(admin: Admin, args: Namespace) -> Report:
    clusters = await admin.clusters_of(args.topic)
    return text_report(*clusters, data=clusters)


@command("allocateMQ", "Show how queues would be shared", TOPIC, need("i", "ipList", "members, separated by commas"))
async def allocate(admin: Admin, args: Namespace) -> Report:
    queues = (await admin.session.route(args.topic)).readable
    members = [member.strip() for member in args.ipList.split(",") if member.strip()]
    shares = {member: allocate_averagely(queues, members, member) for member in sorted(members)}
    rows = [(member, queue.broker_name, queue.queue_id) for member, share in shares.items() for queue in share]
    return table("Member,Broker Name,QID", rows, data={"result": plain(shares)})


@command(
    "updateOrderConf",
    "Show or change an order topic's queues",
    TOPIC,
    need("m", "method", "put, get or delete"),
    opt("v", "orderConf", "broker-a:4;broker-b:4"),
)
async def order_conf(admin: Admin, args: Namespace) -> Report:
    if args.method == "get":
        value = await admin.get_kv(ORDER_NAMESPACE, args.topic)
        return text_report(
            f"get orderConf success. topic=[{args.topic}], orderConf=[{value}]", data={"orderConf": value}
        )
    if args.method == "put":
        if not args.orderConf:
            raise BadArgument("put needs -v broker-a:4;broker-b:4")
        await admin.put_kv(ORDER_NAMESPACE, args.topic, args.orderConf)
        return text_report(f"update orderConf success. topic=[{args.topic}], orderConf=[{args.orderConf}]")
    if args.method == "delete":
        await admin.delete_kv(ORDER_NAMESPACE, args.topic)
        return text_report(f"delete orderConf success. topic=[{args.topic}]")
    raise BadArgument(f"method {args.method!r} is not one of put, get, delete")


@command(
    "statsAll",
    "Show the traffic of topics and groups",
    flag("a", "activeTopic", "only topics with traffic"),
    opt("t", "topic", "only this topic"),
)
async def stats_all(admin: Admin, args: Namespace) -> Report:
    rows = []
    for topic in [args.topic] if args.topic else await admin.topics():
        if is_retry_or_dlq(topic):
            continue
        try:
            addresses = list((await admin.topic_masters(topic)).values())
            groups = await admin.groups_of(topic)
        except NoRoute:
            continue
        in_rate, in_day = await _traffic(admin, addresses, "TOPIC_PUT_NUMS", topic)
        if not groups and not (args.activeTopic and not in_day):
            rows.append((topic, "", 0, in_rate, "", in_day, "NO_CONSUMER"))
        for group in groups:
            out_rate, out_day = await _traffic(admin, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
            offsets, _ = await admin.consume_stats(group, topic)
            behind = sum(max(0, row.broker_offset - row.consumer_offset) for row in offsets.values())
            if not args.activeTopic or in_day or out_day:
                rows.append((topic, group, behind, in_rate, out_rate, in_day, out_day))
    return table("Topic,Consumer Group,Accumulation,InTPS,OutTPS,InMsg24Hour,OutMsg24Hour", rows)


async def _traffic(admin: Admin, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    """(messages a second in the last minute, messages in the last day) over all brokers."""
    rate, day = 0.0, 0
    for address in addresses:
        try:
            stats = await admin.stats(address, name, key)
        except ClientError:
            continue  # the broker has not counted anything under this name yet
        rate += stats.get("statsMinute", {}).get("tps") or 0.0
        day += max((stats.get(f"stats{span}", {}).get("sum") or 0) for span in ("Minute", "Hour", "Day"))
    return rate, day


async def _check_exists(admin: Admin, topic: str, cluster: str) -> None:
    """BadArgument unless the name server or a broker of the cluster has the topic."""
    addresses, known = await admin.addresses(cluster), set(await admin.topics_of_cluster(cluster))
    for address in addresses:
        if topic in known:
            return
        known |= (await admin.topic_configs(address)).topic_config_table.keys()
    if topic not in known:
        names = [name for name in known if not is_retry_or_dlq(name)]
        raise BadArgument(f"cluster {cluster!r} has no topic {topic!r}{did_you_mean(topic, names)}")


async def _order_conf(admin: Admin, addresses: list[str], queues: int) -> str:
    table_ = (await admin.cluster_info()).broker_addr_table
    names = sorted(name for name, broker in table_.items() if set(broker.broker_addrs.values()) & set(addresses))
    return ";".join(f"{name}:{queues}" for name in names)


def _config_text(config: TopicConfig) -> str:
    perm = permission_text(config.perm)
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums},"
        f" writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type},"
        f" topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}]"
    )
