"""Consumer and producer groups: configuration, members, progress."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX
from twinlog.cli.admin.command import broker_or_cluster, command, config_list, flag, masters, need, opt, unused
from twinlog.cli.shared.option_values import boolean
from twinlog.cli.shared.report import Report, joined, pairs, plain, table, text_report, when
from twinlog.client import Admin, BadArgument, BrokerRefused, ClientError, MessageQueue
from twinlog.wire.bodies import ConnectionInfo, MessageRequestMode, SubscriptionGroupConfig
from twinlog.wire.codes import RequestCode, version_name
from twinlog.wire.java_json.fastjson import loads

GROUP = need("g", "groupName", "consumer group")


@command(
    "updateSubGroup",
    "Create or change a consumer group",
    GROUP,
    *broker_or_cluster(),
    opt("s", "consumeEnable", "may consume", kind=boolean, default=True),
    opt("m", "consumeFromMinEnable", "may start at the oldest message", kind=boolean, default=False),
    opt("d", "consumeBroadcastEnable", "may broadcast", kind=boolean, default=False),
    opt("o", "consumeMessageOrderly", "consumes in order", kind=boolean, default=False),
    opt("q", "retryQueueNums", "queues of its retry topic", kind=int, default=1),
    opt("r", "retryMaxTimes", "attempts before the dead letters", kind=int, default=16),
    opt("p", "groupRetryPolicy", "JSON of the retry policy"),
    opt("i", "brokerId", "broker id to consume from", kind=int, default=0),
    opt("w", "whichBrokerWhenConsumeSlowly", "broker id for slow consumers", kind=int, default=1),
    opt("a", "notifyConsumerIdsChanged", "notify members when others join or leave", kind=boolean, default=True),
    opt("", "attributes", "+key=value,-key", default=""),
)
async def update_group(admin: Admin, args: Namespace) -> Report:
    config = SubscriptionGroupConfig(
        group_name=args.groupName,
        consume_enable=args.consumeEnable,
        consume_from_min_enable=args.consumeFromMinEnable,
        consume_broadcast_enable=args.consumeBroadcastEnable,
        consume_message_orderly=args.consumeMessageOrderly,
        retry_queue_nums=args.retryQueueNums,
        retry_max_times=args.retryMaxTimes,
        broker_id=args.brokerId,
        which_broker_when_consume_slowly=args.whichBrokerWhenConsumeSlowly,
        notify_consumer_ids_changed_enable=args.notifyConsumerIdsChanged,
    )
    if args.groupRetryPolicy:
        policy = loads(args.groupRetryPolicy)
        if not isinstance(policy, dict):
            raise BadArgument(f"the retry policy {args.groupRetryPolicy!r} is not a JSON object")
        config.group_retry_policy = policy
    # The broker reads the signs: + sets, - removes.
    config.attributes = dict(pair.partition("=")[::2] for pair in args.attributes.split(",") if pair)
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.save_group(address, config)
    lines = [f"create subscription group to {address} success." for address in addresses]
    return text_report(*lines, data={"brokers": addresses, "config": plain(config)})


@command(
    "updateSubGroupList",
    "Create or change many consumer groups",
    *broker_or_cluster(),
    need("f", "filename", "JSON file: a list of group configurations", kind=Path),
)
async def update_groups(admin: Admin, args: Namespace) -> Report:
    configs = config_list(args.filename, SubscriptionGroupConfig, "group")
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.save_groups(address, configs)
    return text_report(*(f"submit batch of {len(configs)} groups to {address} success." for address in addresses))


@command(
    "deleteSubGroup",
    "Delete a consumer group",
    GROUP,
    *broker_or_cluster(),
    opt("r", "removeOffset", "its offsets too", kind=boolean, default=False),
)
async def delete_group(admin: Admin, args: Namespace) -> Report:
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.delete_group(address, args.groupName, clean_offset=args.removeOffset)
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            await admin.delete_topic_in_broker(address, prefix + args.groupName)
    if not args.brokerAddr:
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            header = {"topic": prefix + args.groupName, "clusterName": args.clusterName}
            await admin.ask_all_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    return text_report(*(f"delete subscription group [{args.groupName}] from broker [{a}] success." for a in addresses))


@command("getConsumerConfig", "Show a consumer group's configuration", GROUP)
async def consumer_config(admin: Admin, args: Namespace) -> Report:
    info = await admin.cluster_info()
    reports, data = [], {}
    for cluster in sorted(info.cluster_addr_table):
        for address in await admin.masters(cluster):
            config = (await admin.groups(address)).subscription_group_table.get(args.groupName)
            if config is not None:
                data[address] = config
                reports.append(pairs(plain(config), title=f"{cluster}: {address}"))
    if not reports:
        raise BadArgument(f"no broker has consumer group {args.groupName!r}; updateSubGroup creates it")
    return joined(reports, data)


@command(
    "setConsumeMode",
    "Set how a group gets the messages of a topic",
    *broker_or_cluster(),
    need("t", "topicName", "topic"),
    GROUP,
    need("m", "mode", "PULL or POP"),
    opt("q", "popShareQueueNum", "queues shared in POP mode", kind=int, default=0),
)
async def consume_mode(admin: Admin, args: Namespace) -> Report:
    if args.mode not in ("PULL", "POP"):
        raise BadArgument(f"mode {args.mode!r} is neither PULL nor POP")
    mode = MessageRequestMode(
        topic=args.topicName,
        consumer_group=args.groupName,
        mode=args.mode,
        pop_share_queue_num=args.popShareQueueNum,
    )
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.set_request_mode(address, mode)
    return text_report(*(f"set consume mode to {address} success." for address in addresses), data=plain(mode))


@command(
    "consumerConnection",
    "Show a group's members and subscriptions",
    need("g", "consumerGroup", "consumer group"),
    opt("b", "brokerAddr", "as this broker sees it"),
)
async def consumer_connection(admin: Admin, args: Namespace) -> Report:
    found = await admin.consumer_connection(args.consumerGroup, args.brokerAddr)
    topics = [(s.topic, s.sub_string, s.expression_type) for s in found.subscription_table.values()]
    report = joined([_member_table(found.connection_set), table("Topic,SubExpression,Type", sorted(topics))])
    report.lines = [
        f"ConsumeType: {found.consume_type}",
        f"MessageModel: {found.message_model}",
        f"ConsumeFromWhere: {found.consume_from_where}",
    ]
    report.data = plain(found)
    return report


@command(
    "producerConnection",
    "Show a producer group's members",
    need("g", "producerGroup", "producer group"),
    need("t", "topic", "a topic that they send to"),
)
async def producer_connection(admin: Admin, args: Namespace) -> Report:
    found = await admin.producer_connection(args.producerGroup, args.topic)
    return _member_table(found.connection_set)


@command("producer", "Show all producers of a broker", need("b", "broker", "broker, host:port"))
async def producers(admin: Admin, args: Namespace) -> Report:
    found = await admin.producers(args.broker)
    rows = [
        (
            *(group, p.get("clientId"), str(p.get("remoteIP", "")).lstrip("/"), p.get("language")),
            *(version_name(p.get("version", 0)), when(p.get("lastUpdateTimestamp"))),
        )
        for group, members in sorted(found.items())
        for p in members
    ]
    return table("Producer Group,ClientId,ClientAddr,Language,Version,Last Updated", rows, data=found)


@command(
    "consumerProgress",
    "Show the progress of consumer groups",
    opt("g", "groupName", "one group, queue by queue"),
    opt("t", "topicName", "only this topic"),
    opt("s", "showClientIP", "who reads each queue", kind=boolean, default=False),
    unused("c", "cluster", "cluster, or parent topic of a light queue"),
)
async def consumer_progress(admin: Admin, args: Namespace) -> Report:
    if args.groupName is None:
        return await _all_progress(admin)
    offsets, rate = await admin.consume_stats(args.groupName, args.topicName)
    readers = await _readers(admin, args.groupName) if args.showClientIP else {}
    rows = []
    for queue, row in offsets.items():
        place = (queue.topic, queue.broker_name, queue.queue_id, row.broker_offset, row.consumer_offset)
        reader = (readers.get(queue, "N/A"),) if args.showClientIP else ()
        rows.append((*place, *reader, row.broker_offset - row.consumer_offset, when(row.last_timestamp)))
    behind = sum(row.broker_offset - row.consumer_offset for row in offsets.values())
    columns = "Topic,Broker Name,QID,Broker Offset,Consumer Offset,"
    columns += "Client IP,Diff,LastTime" if args.showClientIP else "Diff,LastTime"
    return table(columns, rows, lines=[f"Consume TPS: {rate:.2f}", f"Consume Diff Total: {behind}"])


@command(
    "consumerStatus",
    "Show the state of consumers",
    need("g", "consumerGroup", "consumer group"),
    opt("i", "clientId", "only this member, in detail"),
    flag("s", "jstack", "with the member's stacks, if it is a Java one"),
    opt("b", "brokerAddr", "ask through this broker"),
)
async def consumer_status(admin: Admin, args: Namespace) -> Report:
    members = (await admin.consumer_connection(args.consumerGroup, args.brokerAddr)).connection_set
    wanted = [c for c in members if args.clientId in (None, c.client_id)]
    if not wanted:
        raise BadArgument(f"{args.clientId!r} is not a member of {args.consumerGroup!r}; consumerConnection lists them")
    rows, infos = [], {}
    for member in wanted:
        try:
            info = await admin.running_info(args.consumerGroup, member.client_id, jstack=args.jstack)
        except ClientError as error:
            rows.append((member.client_id, version_name(member.version), "", "", str(error)))
            continue
        infos[member.client_id] = info
        properties = info.get("properties", {})
        cached = sum(row.get("cachedMsgCount", 0) for row in info.get("mqTable", {}).values())
        orderly = properties.get("PROP_CONSUMEORDERLY", "")
        rows.append((member.client_id, version_name(member.version), len(info.get("mqTable", {})), cached, orderly))
    report = table("ClientId,Version,Queues,Cached Messages,Orderly", rows, data=infos)
    if args.clientId in infos:
        report.tables += _running_tables(infos[args.clientId])
        if args.jstack:
            report.lines += (infos[args.clientId].get("jstack") or "no stacks given").splitlines()
    return report


@command(
    "brokerConsumeStats",
    "Show the progress of all groups on a broker",
    need("b", "brokerAddr", "broker, host:port"),
    opt("o", "order", "only orderly groups", kind=boolean, default=False),
    opt("t", "timeoutMillis", "how long to wait", kind=int, default=50_000),
    opt("l", "level", "only queues that are this far behind", kind=int, default=0),
)
async def broker_consume_stats(admin: Admin, args: Namespace) -> Report:
    found = await admin.broker_consume_stats(args.brokerAddr, order=args.order, timeout_ms=args.timeoutMillis)
    rows = []
    for groups in found.get("consumeStatsList", []):
        for group, stats in groups.items():
            for each in stats:
                for key, row in each.get("offsetTable", {}).items():
                    queue, at = dict(key), (row.get("brokerOffset", 0), row.get("consumerOffset", 0))
                    if at[0] - at[1] >= args.level:
                        place = (queue["topic"], group, queue["brokerName"], queue["queueId"])
                        rows.append((*place, *at, at[0] - at[1], when(row.get("lastTimestamp"))))
    columns = "Topic,Group,Broker Name,QID,Broker Offset,Consumer Offset,Diff,LastTime"
    return table(columns, sorted(rows), lines=[f"Diff Total: {found.get('totalDiff', 0)}"])


def _member_table(members: list[ConnectionInfo]) -> Report:
    rows = [(one.client_id, one.client_addr, one.language, version_name(one.version)) for one in members]
    return table("ClientId,ClientAddr,Language,Version", rows)


async def _all_progress(admin: Admin) -> Report:
    rows = []
    for topic in await admin.topics():
        if not topic.startswith(RETRY_PREFIX):
            continue
        group = topic.removeprefix(RETRY_PREFIX)
        members: tuple[Any, ...] = (0, "OFFLINE", "", "")
        try:
            found = await admin.consumer_connection(group)
            kind = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(found.consume_type, "POP")
            oldest = min((c.version for c in found.connection_set), default=0)
            members = (len(found.connection_set), version_name(oldest), kind, found.message_model)
        except ClientError:
            pass  # offline
        try:
            offsets, rate = await admin.consume_stats(group)
        except BrokerRefused:
            offsets, rate = {}, 0.0
        behind = sum(row.broker_offset - row.consumer_offset for row in offsets.values())
        rows.append((group, *members, rate, behind))
    return table("Group,Count,Version,Type,Model,TPS,Diff Total", rows)


async def _readers(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """Queue -> address of the member that reads it, as the members report it."""
    found: dict[MessageQueue, str] = {}
    for member in (await admin.consumer_connection(group)).connection_set:
        info = await admin.running_info(group, member.client_id)
        for key in info.get("mqTable", {}):
            queue = dict(key)
            place = MessageQueue(queue["topic"], queue["brokerName"], queue["queueId"])
            found[place] = member.client_id.partition("@")[0]
    return found


def _running_tables(info: dict[str, Any]) -> list[Any]:
    queues = [
        (
            *(dict(key)["topic"], dict(key)["brokerName"], dict(key)["queueId"], row.get("commitOffset")),
            *(row.get("cachedMsgCount"), row.get("locked"), when(row.get("lastPullTimestamp"))),
        )
        for key, row in info.get("mqTable", {}).items()
    ]
    status = [
        (topic, row.get("consumeOKTPS"), row.get("consumeFailedTPS"), row.get("consumeRT"))
        for topic, row in info.get("statusTable", {}).items()
    ]
    return [
        *pairs(info.get("properties", {}), title="properties").tables,
        *table("Topic,Broker Name,QID,Commit Offset,Cached,Locked,Last Pull", queues, title="queues").tables,
        *table("Topic,OK TPS,Failed TPS,RT(ms)", status, title="consumption").tables,
    ]
