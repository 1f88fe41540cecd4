"""Dead letters: messages that a group failed to consume too often, delivered to it once more."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator

from twinlog.base.system_names import dlq_topic
from twinlog.cli.admin.command import command, flag, need, opt
from twinlog.cli.shared.connecting import client_options
from twinlog.cli.shared.option_values import moment_ms, natural
from twinlog.cli.shared.report import Report, table, when
from twinlog.client import Admin, BadArgument, NoRoute, Producer, PullStatus
from twinlog.client.admin.messages import TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of
from twinlog.observe.messages.message_text import resendable
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message

_RETRIES_MAX = 2**31 - 1  # it is to be delivered, however often that was tried before
_SOON = 1  # the shortest delay level


@command(
    "resendDLQ",
    "Deliver a group's dead letters to it again",
    need("g", "consumerGroup", "consumer group"),
    opt("i", "msgId", "only this message, by its id"),
    opt("b", "beginTimestamp", "stored after", kind=moment_ms, default=0),
    opt("e", "endTimestamp", "stored before", kind=moment_ms),
    opt("m", "maxNum", "at most this many", kind=natural, default=0),
    flag("a", "all", "also those that this command has delivered before"),
    flag("o", "toTopic", "send them to their topic, as new messages to all groups"),
    flag("d", "dryRun", "only show them"),
)
async def resend(admin: Admin, args: Namespace) -> Report:
    """By default through the group's retry topic. How far it came is kept as an offset of TOOLS_CONSUMER."""
    topic = dlq_topic(args.consumerGroup)
    try:
        queues = (await admin.session.route(topic)).readable
    except NoRoute as error:
        raise BadArgument(f"group {args.consumerGroup!r} has no dead letters: {error}") from error
    if not queues:
        raise BadArgument(f"{topic} is not readable; updateTopicPerm -t '{topic}' -p 6 changes that")
    rows = []
    async with Producer(args.namesrvAddr, "TOOLS_RESEND_DLQ", options=client_options(args)) as producer:
        for queue in queues:
            start = await _start(admin, queue, everything=args.all or bool(args.msgId))
            async for message in _letters(admin, queue, start, args):
                if args.maxNum and len(rows) >= args.maxNum:
                    break
                if not args.dryRun:
                    await _deliver(admin, producer, queue, message, args)
                origin = message.properties.get(names.RETRY_TOPIC, "")
                rows.append(
                    (message.message_id, origin, queue.broker_name, message.queue_offset, when(message.store_timestamp))
                )
    done = "would be delivered" if args.dryRun else "sent again" if args.toTopic else "delivered again"
    to = "to their topic" if args.toTopic else f"to group {args.consumerGroup}"
    line = f"{len(rows)} dead letters {done} {to}" + ("" if rows or args.all else "; -a shows those of earlier runs")
    return table("Message ID,Topic,Broker Name,Offset,Stored", rows, lines=[line])


async def _start(admin: Admin, queue: MessageQueue, *, everything: bool) -> int:
    first = await admin.queue_calls.min_offset(queue)
    done = None if everything else await admin.queue_calls.committed(TOOLS_GROUP, queue)
    # A mark beyond the end is of a topic that was deleted and is new, or of a log that lost its end.
    return first if done is None or done > await admin.queue_calls.max_offset(queue) else max(first, done)


async def _letters(admin: Admin, queue: MessageQueue, start: int, args: Namespace) -> AsyncIterator[Message]:
    """The dead letters of one queue that are asked for and stored by now, oldest first."""
    end = await admin.queue_calls.max_offset(queue)
    while start < end:
        result = await admin.queue_calls.pull(TOOLS_GROUP, queue, start, subscription_of(queue.topic, "*"))
        if result.status is PullStatus.NO_NEW or result.next_offset <= start:
            break
        for one in result.messages:
            if one.queue_offset < end and _is_wanted(one, args):
                yield one
        start = result.next_offset


def _is_wanted(message: Message, args: Namespace) -> bool:
    in_time = args.beginTimestamp <= message.store_timestamp <= (args.endTimestamp or message.store_timestamp)
    return in_time and args.msgId in (None, message.message_id, message.properties.get(names.ORIGIN_MESSAGE_ID))


async def _deliver(admin: Admin, producer: Producer, queue: MessageQueue, message: Message, args: Namespace) -> None:
    """Deliver it, then remember that: a run that is stopped in between delivers the last one twice, and loses none."""
    if args.toTopic:
        origin = message.properties.get(names.RETRY_TOPIC) or message.properties.get(names.DLQ_ORIGIN_TOPIC)
        if not origin:
            raise BadArgument(
                f"dead letter {message.message_id} does not say which topic it is of; leave out --toTopic"
            )
        await producer.send(resendable(message, origin))
    else:
        await admin.queue_calls.send_back(args.consumerGroup, queue, message, _SOON, _RETRIES_MAX)
    is_next = not (args.all or args.msgId or args.beginTimestamp or args.endTimestamp)
    if is_next:
        await admin.queue_calls.commit(TOOLS_GROUP, queue, message.queue_offset + 1)
