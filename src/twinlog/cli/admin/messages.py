"""Show messages: by id, by key, by offset, by time."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from twinlog.base.addresses import address_text
from twinlog.cli.admin.command import command, flag, need, opt, unused
from twinlog.cli.shared.connecting import client_options
from twinlog.cli.shared.option_values import boolean, moment_ms
from twinlog.cli.shared.report import Report, Table, joined, pairs, table, text_report, when
from twinlog.client import Admin, BadArgument, ClientError, MessageQueue, Outgoing, Producer, PullStatus
from twinlog.client.admin.messages import LONG_MAX, TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of
from twinlog.observe.messages.message_text import body_text, message_data
from twinlog.wire.message import Message

TOPIC = need("t", "topic", "topic")
LIGHT_QUEUE = unused("c", "cluster", "cluster, or parent topic of a light queue")


@command(
    "queryMsgById",
    "Show a message by its offset id",
    need("i", "msgId", "offset id (broker and physical offset), several separated by commas"),
    opt("t", "topic", "topic"),
    opt("g", "consumerGroup", "with -d: have it consumed again by this group"),
    opt("d", "clientId", "member of the group that consumes it now"),
    opt("s", "sendMessage", "send it again, as a new message", kind=boolean, default=False),
    opt("f", "bodyFormat", "character set of the body", default="UTF-8"),
    unused("u", "unitName", "unit name"),
    LIGHT_QUEUE,
)
async def by_id(admin: Admin, args: Namespace) -> Report:
    found = [await admin.message_by_offset_id(text.strip(), args.topic) for text in args.msgId.split(",")]
    report = await _details(admin, found, args.bodyFormat)
    if args.sendMessage:
        report.tables += (await _sent_again(args, found)).tables
    if args.consumerGroup and args.clientId:
        for message in found:
            result = await admin.consume_directly(
                args.consumerGroup, args.clientId, message.offset_message_id, message.topic
            )
            report.tables += pairs(result, title=f"consumed by {args.clientId}").tables
    return report


@command(
    "queryMsgByUniqueKey",
    "Show a message by its id",
    need("i", "msgId", "the sender's message id"),
    TOPIC,
    flag("a", "showAll", "all messages with the id, not only the newest"),
    opt("s", "startTime", "stored after", kind=moment_ms),
    opt("e", "endTime", "stored before", kind=moment_ms, default=LONG_MAX),
    opt("g", "consumerGroup", "with -d: have it consumed again by this group"),
    opt("d", "clientId", "member of the group that consumes it now"),
    LIGHT_QUEUE,
)
async def by_unique_key(admin: Admin, args: Namespace) -> Report:
    found = await admin.messages_by_unique_key(args.topic, args.msgId, begin_ms=args.startTime, end_ms=args.endTime)
    if not found:
        raise BadArgument(f"topic {args.topic!r} has no message {args.msgId!r} in that time; -s 0 searches all of it")
    if args.consumerGroup and args.clientId:
        offset_id = found[-1].offset_message_id
        return pairs(await admin.consume_directly(args.consumerGroup, args.clientId, offset_id, args.topic))
    return await _details(admin, found if args.showAll else found[-1:])


@command(
    "queryMsgByKey",
    "Find messages by a key",
    TOPIC,
    need("k", "msgKey", "key"),
    opt("b", "beginTimestamp", "stored after", kind=moment_ms, default=0),
    opt("e", "endTimestamp", "stored before", kind=moment_ms, default=LONG_MAX),
    opt("m", "maxNum", "at most this many of each broker, whose own limit is maxMsgsNumBatch", kind=int, default=64),
    LIGHT_QUEUE,
)
async def by_key(admin: Admin, args: Namespace) -> Report:
    found = await admin.messages_by_key(
        args.topic, args.msgKey, count_max=args.maxNum, begin_ms=args.beginTimestamp, end_ms=args.endTimestamp
    )
    return _listed(found, with_body=True)


@command(
    "queryMsgByOffset",
    "Show the message at one queue offset",
    TOPIC,
    need("b", "brokerName", "broker name"),
    need("i", "queueId", "queue", kind=int),
    need("o", "offset", "queue offset", kind=int),
    opt("f", "bodyFormat", "character set of the body", default="UTF-8"),
)
async def by_offset(admin: Admin, args: Namespace) -> Report:
    queue = MessageQueue(args.topic, args.brokerName, args.queueId)
    found = await admin.message_at(queue, args.offset)
    if found is None:
        first, end = await admin.queue_calls.min_offset(queue), await admin.queue_calls.max_offset(queue)
        raise BadArgument(f"no message at offset {args.offset}: queue {args.queueId} holds {first} up to {end}")
    return await _details(admin, [found], args.bodyFormat)


@command(
    "printMsg",
    "Print the messages of a topic",
    TOPIC,
    opt("s", "subExpression", "tags, such as a || b", default="*"),
    opt("b", "beginTimestamp", "stored after", kind=moment_ms),
    opt("e", "endTimestamp", "stored before", kind=moment_ms),
    opt("d", "printBody", "with their bodies", kind=boolean, default=True),
    opt("c", "charsetName", "character set of the bodies", default="UTF-8"),
)
async def print_topic(admin: Admin, args: Namespace) -> Report:
    queues = (await admin.session.route(args.topic)).readable
    found = [m for queue in queues async for m in _range(admin, queue, args)]
    return _listed(found, with_body=args.printBody, charset=args.charsetName)


@command(
    "printMsgByQueue",
    "Print the messages of a queue",
    TOPIC,
    need("a", "brokerName", "broker name"),
    need("i", "queueId", "queue", kind=int),
    opt("p", "printMsg", "print them", kind=boolean, default=False),
    opt("d", "printBody", "with their bodies", kind=boolean, default=False),
    opt("f", "calculate", "count by tag", kind=boolean, default=False),
    opt("s", "subExpression", "tags, such as a || b", default="*"),
    opt("b", "beginTimestamp", "stored after", kind=moment_ms),
    opt("e", "endTimestamp", "stored before", kind=moment_ms),
    opt("c", "charsetName", "character set of the bodies", default="UTF-8"),
)
async def print_queue(admin: Admin, args: Namespace) -> Report:
    queue = MessageQueue(args.topic, args.brokerName, args.queueId)
    found = [message async for message in _range(admin, queue, args)]
    report = (
        _listed(found, with_body=args.printBody, charset=args.charsetName) if args.printMsg else text_report(data=[])
    )
    if args.calculate:
        counts = Counter(message.tags or "" for message in found)
        report.tables += table("Tag,Count", counts.most_common()).tables
        report.data = {"messages": report.data, "tags": dict(counts)}
    return report


@command(
    "consumeMessage",
    "Print messages, the oldest first",
    TOPIC,
    opt("b", "brokerName", "broker name; with -i"),
    opt("i", "queueId", "queue; with -b", kind=int),
    opt("o", "offset", "queue offset to start at; with -i", kind=int),
    opt("g", "consumerGroup", "read as this group", default=TOOLS_GROUP),
    opt("c", "MessageNumber", "at most this many", kind=int, default=128),
    opt("s", "beginTimestamp", "stored after", kind=moment_ms),
    opt("e", "endTimestamp", "stored before", kind=moment_ms),
)
async def consume(admin: Admin, args: Namespace) -> Report:
    queues = (await admin.session.route(args.topic)).readable
    if args.brokerName:
        queues = tuple(queue for queue in queues if queue.broker_name == args.brokerName)
    if args.queueId is not None:
        queues = tuple(queue for queue in queues if queue.queue_id == args.queueId)
    if not queues:
        raise BadArgument(f"topic {args.topic!r} has no such queue; topicStatus lists them")
    if args.offset is not None and len(queues) > 1:
        raise BadArgument("-o needs one queue: name it with -b and -i")
    found: list[Message] = []
    for queue in queues:
        async for message in _range(admin, queue, args):
            if len(found) >= args.MessageNumber:
                break
            found.append(message)
    return _listed(found, with_body=True)


@command(
    "queryCq",
    "Show entries of a consume queue",
    TOPIC,
    need("q", "queue", "queue", kind=int),
    need("i", "index", "first queue offset", kind=int),
    opt("c", "count", "how many", kind=int, default=10),
    opt("b", "broker", "broker, host:port"),
    opt("g", "consumer", "consumer group whose filter is tried"),
)
async def consume_queue(admin: Admin, args: Namespace) -> Report:
    address = args.broker or next(iter((await admin.topic_masters(args.topic)).values()))
    found = await admin.consume_queue(address, args.topic, args.queue, args.index, args.count, args.consumer)
    rows = [
        (args.index + i, row.get("physicOffset"), row.get("physicSize"), row.get("tagsCode"), row.get("msg"))
        for i, row in enumerate(found.get("queueData") or [])
    ]
    line = f"max: {found.get('maxQueueIndex')}, min: {found.get('minQueueIndex')}"
    return table("Index,Physical Offset,Size,Tags Code,Note", rows, lines=[line], data=found)


async def _range(admin: Admin, queue: MessageQueue, args: Namespace) -> AsyncIterator[Message]:
    """The messages of `queue` between two moments (or from an offset on), as they are now."""
    calls = admin.queue_calls
    begin, end_ms = args.beginTimestamp, args.endTimestamp
    start = getattr(args, "offset", None)
    if start is None:
        start = await calls.min_offset(queue) if begin is None else await calls.offset_at(queue, begin)
    end = await calls.max_offset(queue) if end_ms is None else await calls.offset_at(queue, end_ms + 1)
    subscription = subscription_of(queue.topic, getattr(args, "subExpression", "*"))
    group = getattr(args, "consumerGroup", None) or TOOLS_GROUP
    while start < end:
        result = await calls.pull(group, queue, start, subscription)
        if result.status is PullStatus.NO_NEW or result.next_offset <= start:
            return
        for message in result.messages:
            if message.queue_offset < end:
                yield message
        start = result.next_offset


async def _sent_again(args: Namespace, messages: list[Message]) -> Report:
    rows = []
    async with Producer(args.namesrvAddr, "ReSendMsgById", options=client_options(args)) as producer:
        for message in messages:
            again = Outgoing(message.topic, message.body, tags=message.tags, keys=message.keys, flag=message.flag)
            sent = await producer.send(again)
            rows.append((message.message_id, sent.message_id, sent.queue.queue_id, sent.queue_offset))
    return table("Message ID,Sent Again As,QID,Offset", rows)


async def _details(admin: Admin, messages: list[Message], charset: str = "UTF-8") -> Report:
    reports = []
    for message in messages:
        details: dict[str, Any] = {
            "Message ID": message.message_id,
            "OffsetID": message.offset_message_id,
            "Topic": message.topic,
            "Tags": message.tags,
            "Keys": " ".join(message.keys),
            "Queue ID": message.queue_id,
            "Queue Offset": message.queue_offset,
            "CommitLog Offset": message.physical_offset,
            "Reconsume Times": message.reconsume_times,
            "Born Timestamp": when(message.born_timestamp),
            "Store Timestamp": when(message.store_timestamp),
            "Born Host": address_text(*message.born_host),
            "Store Host": address_text(*message.store_host),
            "System Flag": message.sys_flag,
            "Properties": message.properties,
            "Body": body_text(message.body, charset),
        }
        reports.append(pairs(details))
        reports.append(await _consumers(admin, message))
    data = [message_data(message) for message in messages]
    return joined(reports, data)


async def _consumers(admin: Admin, message: Message) -> Report:
    """Which groups have consumed the message, according to their offsets."""
    rows = []
    try:
        groups = await admin.groups_of(message.topic)
    except ClientError:
        return Report()
    for group in groups:
        try:
            offsets, _ = await admin.consume_stats(group, message.topic)
        except ClientError:
            continue
        for queue, row in offsets.items():
            if queue.queue_id == message.queue_id and queue.topic == message.topic:
                done = row.consumer_offset > message.queue_offset
                rows.append((group, "CONSUMED" if done else "NOT_CONSUME_YET"))
    return table("Consumer Group,Status", rows) if rows else Report()


def _listed(messages: list[Message], *, with_body: bool, charset: str = "UTF-8") -> Report:
    rows = [
        (
            *(m.message_id, m.queue_id, m.queue_offset, when(m.store_timestamp), m.tags, " ".join(m.keys)),
            *((body_text(m.body, charset),) if with_body else ()),
        )
        for m in messages
    ]
    columns = "Message ID,QID,Offset,Stored,Tags,Keys" + (",Body" if with_body else "")
    report = table(columns, rows, data=[message_data(m, with_body=with_body) for m in messages])
    if with_body:  # on a terminal a column would be too narrow for bodies
        report.screen = [_on_screen(m, charset) for m in messages] or report.tables
    return report


def _on_screen(m: Message, charset: str) -> Table:
    title = f"{m.message_id}  queue {m.queue_id} offset {m.queue_offset}  {when(m.store_timestamp)}"
    labels = [f"tags: {m.tags}" if m.tags else "", f"keys: {' '.join(m.keys)}" if m.keys else ""]
    return Table([], [], title, ["  ".join(filter(None, labels))] * any(labels) + [body_text(m.body, charset)])
