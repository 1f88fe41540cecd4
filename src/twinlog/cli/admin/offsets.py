"""Consumer offsets: move, skip, copy."""

from __future__ import annotations

from argparse import Namespace

from twinlog.cli.admin.command import command, need, opt, unused
from twinlog.cli.shared.option_values import boolean, moment_ms
from twinlog.cli.shared.report import Report, table, text_report
from twinlog.client import Admin, BadArgument, MessageQueue

GROUP, TOPIC = need("g", "group", "consumer group"), need("t", "topic", "topic")


@command(
    "resetOffsetByTime",
    "Move a consumer group to a point in time",
    GROUP,
    TOPIC,
    need("s", "timestamp", "now, -1 (the newest message), milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS", kind=moment_ms),
    opt("f", "force", "move forwards too (old brokers)", kind=boolean, default=True),
    opt("b", "broker", "only this broker, host:port; with -q"),
    opt("q", "queue", "only this queue; with -b", kind=int),
    opt("o", "offset", "to this offset instead of a time; with -q", kind=int),
    unused("c", "cluster", "cluster, or parent topic of a light queue"),
)
async def reset_offset(admin: Admin, args: Namespace) -> Report:
    if args.offset is not None and args.queue is None:
        raise BadArgument("-o moves one queue: name it with -b host:port -q queue")
    if args.queue is not None and not args.broker:
        raise BadArgument("-q needs the queue's broker: -b host:port")
    moved = await admin.reset_offset(
        args.topic,
        args.group,
        args.timestamp,
        force=args.force,
        address=args.broker,
        queue_id=-1 if args.queue is None else args.queue,
        offset=args.offset,
    )
    return _moved(moved)


@command(
    "skipAccumulatedMessage",
    "Let a group skip all messages up to now",
    GROUP,
    TOPIC,
    opt("f", "force", "move forwards too (old brokers)", kind=boolean, default=True),
    unused("c", "cluster", "cluster, or parent topic of a light queue"),
)
async def skip(admin: Admin, args: Namespace) -> Report:
    return _moved(await admin.reset_offset(args.topic, args.group, -1, force=args.force))


@command(
    "cloneGroupOffset",
    "Copy the offsets of one group to another",
    need("s", "srcGroup", "group to copy from"),
    need("d", "destGroup", "group to copy to"),
    TOPIC,
    opt("o", "offline", "the target group is not running", kind=boolean, default=False),
)
async def clone(admin: Admin, args: Namespace) -> Report:
    await admin.clone_offset(args.srcGroup, args.destGroup, args.topic, offline=args.offline)
    return text_report(
        f"clone group offset success. srcGroup[{args.srcGroup}], destGroup=[{args.destGroup}], topic[{args.topic}]"
    )


def _moved(moved: dict[MessageQueue, int]) -> Report:
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in moved.items()]
    return table("brokerName,queueId,offset", rows)
