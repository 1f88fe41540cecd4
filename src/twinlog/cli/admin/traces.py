"""Message traces: when a message was sent, and by whom it was consumed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinlog.base.addresses import address_text
from twinlog.base.system_names import TRACE_TOPIC
from twinlog.cli.admin.command import command, need, opt, unused
from twinlog.cli.shared.option_values import moment_ms
from twinlog.cli.shared.report import Report, Table, when
from twinlog.client import Admin, BadArgument, NoRoute
from twinlog.client.admin.messages import LONG_MAX
from twinlog.client.admin.trace_records import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
    decode_trace,
)


@dataclass(frozen=True, slots=True)
class Traced:
    """A record, and the client that sent it."""

    record: TraceRecord
    host: str


@command(
    "queryMsgTraceById",
    "Show when a message was sent and consumed",
    need("i", "msgId", "the sender's message id"),
    opt("t", "traceTopic", "topic of the traces", default=TRACE_TOPIC),
    opt("b", "beginTimestamp", "traces stored after", kind=moment_ms, default=0),
    opt("e", "endTimestamp", "traces stored before", kind=moment_ms, default=LONG_MAX),
    opt("c", "maxNum", "at most this many trace messages of each broker", kind=int, default=64),
    unused("d", "cluster", "cluster"),
)
async def trace_by_id(admin: Admin, args: Namespace) -> Report:
    try:
        messages = await admin.messages_by_key(
            args.traceTopic,
            args.msgId,
            count_max=args.maxNum,
            begin_ms=args.beginTimestamp,
            end_ms=args.endTimestamp,
        )
    except NoRoute as error:
        hint = "brokers have RMQ_SYS_TRACE_TOPIC with traceTopicEnable=true, and clients trace if that is switched on"
        raise BadArgument(f"no broker has the trace topic {args.traceTopic!r}: {hint}") from error
    found = [
        Traced(record, address_text(*message.born_host).rpartition(":")[0])
        for message in messages
        for record in decode_trace(message.body)
        if record.message_id == args.msgId
    ]
    if not found:
        raise BadArgument(
            f"topic {args.traceTopic!r} has no trace of message {args.msgId!r}: check the id, and that producer and "
            "consumer trace their messages (in Java: enableMsgTrace)"
        )
    return trace_report(found)


def trace_report(found: Sequence[Traced]) -> Report:
    """The send in one table, and for each consumer group when and how long it consumed the message."""
    sends = [one for one in found if one.record.kind in (PUB, END_TRANSACTION, RECALL)]
    receptions = _receptions(found)
    tables = []
    if sends:
        columns = "Type,ProducerGroup,ClientHost,SendTime,CostTimes,Status".split(",")
        tables.append(Table(columns, [_send_row(one) for one in sends]))
    for group in dict.fromkeys(one["group"] for one in receptions):
        rows = [_reception_row(one) for one in receptions if one["group"] == group]
        columns = "Type,ConsumerGroup,ClientHost,ConsumerTime,CostTimes,Status".split(",")
        tables.append(Table(columns, rows))
    data = {"sends": [_send_data(one) for one in sends], "consumptions": receptions}
    return Report(tables, [], data)


def _send_row(one: Traced) -> Sequence[Any]:
    record = one.record
    cost = f"{record.cost_ms}ms" if record.kind == PUB else ""
    return (record.kind, record.group, one.host, when(record.time_ms), cost, _status(record))


def _send_data(one: Traced) -> dict[str, Any]:
    record = one.record
    return {
        "type": record.kind,
        "group": record.group,
        "topic": record.topic,
        "clientHost": one.host,
        "storeHost": record.store_host,
        "timeMs": record.time_ms,
        "costMs": record.cost_ms,
        "status": _status(record),
    }


def _status(record: TraceRecord) -> str:
    if record.transaction_state:
        return record.transaction_state
    return {True: "success", False: "failed", None: "unknown"}[record.success]


def _receptions(found: Sequence[Traced]) -> list[dict[str, Any]]:
    """SubBefore and SubAfter of one reception belong together by their request id; either may be missing."""
    before = {one.record.request_id: one for one in found if one.record.kind == SUB_BEFORE}
    after = {one.record.request_id: one for one in found if one.record.kind == SUB_AFTER}
    joined = list[dict[str, Any]]()
    for request_id in dict.fromkeys([*before, *after]):
        begin, end = before.get(request_id), after.get(request_id)
        known = begin or end
        assert known is not None
        joined.append(
            {
                "group": known.record.group or (end.record.group if end else ""),
                "clientHost": known.host,
                "timeMs": known.record.time_ms,
                "retries": begin.record.retries if begin else None,
                "costMs": end.record.cost_ms if end else None,
                "status": _status(end.record) if end else "not finished",
            }
        )
    return sorted(joined, key=lambda one: one["timeMs"])


def _reception_row(one: dict[str, Any]) -> Sequence[Any]:
    cost = "" if one["costMs"] is None else f"{one['costMs']}ms"
    return ("Sub", one["group"], one["clientHost"], when(one["timeMs"]), cost, one["status"])
