"""Commands that send messages and measure how long it takes."""

from __future__ import annotations

import time
from argparse import Namespace

from twinlog.cli.admin.command import command, need, opt, unused
from twinlog.cli.shared.connecting import client_options
from twinlog.cli.shared.option_values import boolean
from twinlog.cli.shared.report import Report, table
from twinlog.client import Admin, BadArgument, ClientError, MessageQueue, NetError, Outgoing, Producer

GROUP = "TOOLS_PRODUCER"


@command(
    "sendMessage",
    "Send a message",
    need("t", "topic", "topic"),
    need("p", "body", "the body, as text"),
    opt("k", "key", "keys", default=""),
    opt("c", "tags", "tag", default=""),
    opt("b", "broker", "broker name; with -i"),
    opt("i", "qid", "queue; with -b", kind=int),
    unused("m", "msgTraceEnable", "trace the message"),
)
async def send(admin: Admin, args: Namespace) -> Report:
    if (args.broker is None) != (args.qid is None):
        raise BadArgument("-b and -i name a queue together")
    queue = MessageQueue(args.topic, args.broker, args.qid) if args.broker else None
    message = Outgoing(args.topic, args.body, tags=args.tags, keys=args.key.split())
    async with Producer(args.namesrvAddr, GROUP, options=client_options(args)) as producer:
        sent = await producer.send(message, queue=queue)
    status = "SEND_OK" if sent.status.name == "OK" else sent.status.name
    row = (sent.queue.broker_name, sent.queue.queue_id, status, sent.message_id, sent.queue_offset)
    return table("Broker Name,QID,Send Result,MsgId,Offset", [row])


@command(
    "sendMsgStatus",
    "Send to a broker, show how long it takes",
    need("b", "brokerName", "broker name, which is also the topic"),
    opt("s", "messageSize", "bytes", kind=int, default=128),
    opt("c", "count", "how many", kind=int, default=50),
)
async def send_status(admin: Admin, args: Namespace) -> Report:
    return await _timed(args, args.brokerName, args.count, args.messageSize)


@command(
    "checkMsgSendRT",
    "Send to a topic, show how long it takes",
    need("t", "topic", "topic"),
    opt("a", "amount", "how many", kind=int, default=100),
    opt("s", "size", "bytes", kind=int, default=128),
)
async def check_send(admin: Admin, args: Namespace) -> Report:
    return await _timed(args, args.topic, args.amount, args.size)


@command(
    "clusterRT",
    "Send to every cluster, show the mean time",
    opt("a", "amount", "messages for each cluster", kind=int, default=100),
    opt("s", "size", "bytes", kind=int, default=128),
    opt("c", "cluster", "only this cluster"),
    opt("p", "printAsTlog", "one line for each cluster, separated by |", kind=boolean, default=False),
    opt("i", "interval", "repeat every so many seconds", kind=float),
    unused("m", "machineRoom", "machine room to print"),
)
async def cluster_rt(admin: Admin, args: Namespace) -> Report:
    rows = []
    for cluster in [args.cluster] if args.cluster else sorted((await admin.cluster_info()).cluster_addr_table):
        times = await _times(args, cluster, args.amount, args.size)
        good = [ms for _, ms, error in times if not error]
        rows.append((cluster, sum(good) / len(good) if good else 0.0, len(good), len(times) - len(good)))
    report = table("Cluster Name,RT(ms),Successes,Failures", rows)
    if args.printAsTlog:
        report.tables, report.lines = [], ["|".join(map(str, row)) for row in rows]
    return report


async def _timed(args: Namespace, topic: str, count: int, size: int) -> Report:
    times = await _times(args, topic, count, size)
    rows = [
        (place.broker_name if place else "", place.queue_id if place else "", error or "true", round(ms, 2))
        for place, ms, error in times
    ]
    # The first send opens the connection, so it is not part of the mean.
    later = [ms for _, ms, _ in times[1:]] or [ms for _, ms, _ in times]
    mean = sum(later) / len(later) if later else 0.0
    return table("Broker Name,QID,Send Result,RT(ms)", rows, lines=[f"Avg RT: {mean:.2f}"])


async def _times(args: Namespace, topic: str, count: int, size: int) -> list[tuple[MessageQueue | None, float, str]]:
    times: list[tuple[MessageQueue | None, float, str]] = []
    async with Producer(args.namesrvAddr, GROUP, options=client_options(args)) as producer:
        for _ in range(count):
            started = time.perf_counter()
            queue, error = None, ""
            try:
                queue = (await producer.send(Outgoing(topic, b"a" * max(size, 1)))).queue
            except (ClientError, NetError) as failure:
                error = str(failure)
            times.append((queue, (time.perf_counter() - started) * 1000, error))
    return times
