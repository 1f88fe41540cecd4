"""One sample of one broker and its replicas: how far groups and replicas are behind, read in blocking calls.

A sample changes nothing: messages whose age is wanted are pulled as TOOLS_CONSUMER, a group that every broker has, and
no offset is committed. If something cannot be read, there is a row with the reason.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twinlog.client.admin.lag_estimate import LagEstimate
from twinlog.client.consuming.pulling import PULL_CODES, pull_header, subscription_of
from twinlog.client.errors import ClientError
from twinlog.net.errors import NetError
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.endpoint import error_text
from twinlog.spark.jobs.sync_status import BrokerState
from twinlog.spark.live_broker import LiveBroker
from twinlog.wire.bodies import ConsumerOffsetTable, MessageQueue, TopicOffset, TopicStats, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.fields import encode_fields
from twinlog.wire.message import decode_message

PULL_GROUP = "TOOLS_CONSUMER"
TIMEOUT_MS = 10_000  # a broker that hangs becomes a row of this minute, after four tries
_OWN_GROUPS = "CID_RMQ_SYS_"
_EXPECTED = (ClientError, NetError, WireError, OSError, KeyError, ValueError)
_NO_TOPIC = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR)


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """The brokers of one name, by id."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """How far one group is behind in one queue, or one replica behind its master; `error` if that is unknown."""

    kind: str  # group, replica, copy, error
    cluster: str
    broker_name: str
    broker_id: int | None = 0  # None for a copy of `pipeline sync`
    group: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    broker_offset: int | None = None  # the end of the queue or the log
    consumer_offset: int | None = None  # the next offset to read
    messages: int | None = None
    messages_exact: bool | None = None
    bytes: int | None = None
    seconds: float | None = None  # age of the first message that is missing
    error: str | None = None


def sample_brokers(
    brokers: BrokerGroup,
    options: ClusterOptions,
    groups: tuple[str, ...],
    now_ms: Callable[[], int],
    copy: BrokerState | None = None,
) -> Iterator[LagRow]:
    """All rows of the brokers of one name; a broker that does not answer is a row of kind `error`."""
    master = brokers.addresses.get(0)
    blank = LagRow(kind="error", cluster=brokers.cluster, broker_name=brokers.name)
    if master is None:
        yield replace(blank, error="no master is registered: groups and replicas cannot be measured")
        return
    asked = LiveBroker(master, options, TIMEOUT_MS)
    try:
        yield from _groups(asked, blank, groups, now_ms)
    except _EXPECTED as error:
        yield replace(blank, error=f"{master}: {error_text(error)}")
        return
    for number, address in sorted(brokers.addresses.items()):
        if number:
            one = replace(blank, broker_id=number)
            try:
                yield measure_replica(asked, LiveBroker(address, options, TIMEOUT_MS), one, now_ms)
            except _EXPECTED as error:
                yield replace(one, error=f"{address}: {error_text(error)}")
    if copy is not None:
        one = replace(blank, broker_id=None)
        try:
            yield measure_copy(asked, copy, one, now_ms)
        except _EXPECTED as error:
            yield replace(one, error=f"{master}: {error_text(error)}")


# -- groups --------------------------------------------------------------------------------------------


def _groups(broker: LiveBroker, blank: LagRow, wanted: tuple[str, ...], now_ms: Callable[[], int]) -> Iterator[LagRow]:
    table = decode_body(ConsumerOffsetTable, bytes(broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)).offset_table
    offsets = committed_offsets(table, wanted)
    topics = sorted({topic for topic, _ in offsets})
    queues: dict[tuple[str, int], TopicOffset] = {}
    if topics:
        commands = [Command(RequestCode.GET_TOPIC_STATS_INFO, fields={"topic": topic}) for topic in topics]
        for answer in broker.ask_all(commands, accepts=_NO_TOPIC):
            if answer.code == ResponseCode.SUCCESS:  # offsets outlive a topic that was deleted
                stats = decode_body(TopicStats, bytes(answer.body))
                queues |= {(one.topic, one.queue_id): found for one, found in stats.offset_table.items()}
    rows = list(group_rows(blank, offsets, queues))
    ages = _stored_ms(broker, blank.broker_name, rows, queues)
    now = now_ms()
    for row in rows:
        stored = ages.get((row.topic or "", row.queue_id or 0, row.consumer_offset or 0))
        yield replace(row, seconds=0.0 if not row.messages else age_s(now, stored))


def committed_offsets(
    table: Mapping[str, Mapping[int, int]], wanted: tuple[str, ...]
) -> dict[tuple[str, str], Mapping[int, int]]:
    """(topic, group) -> offsets by queue, of the wanted groups; without system groups and broadcasts."""
    found = {}
    for key, row in table.items():
        topic, _, group = key.partition("@")
        if not group or "@" in group or group.startswith(_OWN_GROUPS):
            continue
        if not wanted or any(fnmatch.fnmatchcase(group, pattern) for pattern in wanted):
            found[topic, group] = row
    return found


def group_rows(
    blank: LagRow, offsets: Mapping[tuple[str, str], Mapping[int, int]], queues: Mapping[tuple[str, int], TopicOffset]
) -> Iterator[LagRow]:
    """A row for each queue in which a group has committed. Deleted messages do not count as lag."""
    for (topic, group), row in sorted(offsets.items()):
        for queue_id, offset in sorted(row.items()):
            ends = queues.get((topic, queue_id))
            if ends is not None:
                behind = max(0, ends.max_offset - max(offset, ends.min_offset))
                yield replace(
                    blank,
                    kind="group",
                    group=group,
                    topic=topic,
                    queue_id=queue_id,
                    broker_offset=ends.max_offset,
                    consumer_offset=offset,
                    messages=behind,
                    messages_exact=True,
                )


def _stored_ms(
    broker: LiveBroker, name: str, rows: list[LagRow], queues: Mapping[tuple[str, int], TopicOffset]
) -> dict[tuple[str, int, int], int]:
    """When the next message of each row that is behind was stored, by topic, queue and the row's offset."""
    wanted: dict[tuple[str, int, int], int] = {}
    for row in rows:
        if row.messages and row.topic is not None and row.queue_id is not None and row.consumer_offset is not None:
            key = (row.topic, row.queue_id, row.consumer_offset)
            wanted[key] = max(row.consumer_offset, queues[row.topic, row.queue_id].min_offset)
    commands = []
    for (topic, queue_id, _), offset in wanted.items():
        queue = MessageQueue(topic, name, queue_id)
        header = pull_header(
            PULL_GROUP, queue, offset, subscription_of(topic, "*"), count_max=1, send_subscription=True
        )
        commands.append(Command(RequestCode.PULL_MESSAGE, fields=encode_fields(header)))
    answers = broker.ask_all(commands, accepts=(*PULL_CODES, *_REFUSED)) if commands else []
    return {
        key: decode_message(answer.body, check_crc=False).store_timestamp
        for key, answer in zip(wanted, answers, strict=True)
        if answer.code == ResponseCode.SUCCESS and len(answer.body)
    }


_REFUSED = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)


# -- replicas ------------------------------------------------------------------------------------------


def measure_replica(master: LiveBroker, replica: LiveBroker, blank: LagRow, now_ms: Callable[[], int]) -> LagRow:
    """The replica is asked first, so it never seems to be ahead of its master."""
    theirs = replica.status()
    end = theirs["logEnd"] if theirs else int(replica.runtime_info()["commitLogMaxOffset"])
    ours = master.status()
    master_end = _log_end(master, ours)
    row = replace(blank, kind="replica", broker_offset=master_end, consumer_offset=end, bytes=max(0, master_end - end))
    if not row.bytes:
        return replace(row, messages=0, messages_exact=True, seconds=0.0)
    view = _view_of(ours, theirs)
    if view is not None and view["lagBytes"]:
        age = view["lagMs"]
        row = replace(row, messages=view["lagMessages"], messages_exact=view["lagMessagesExact"])
        return replace(row, seconds=None if age is None else age / 1000)
    return _count_records(master, row, end, master_end, now_ms())


def measure_copy(master: LiveBroker, copy: BrokerState, blank: LagRow, now_ms: Callable[[], int]) -> LagRow:
    """How far a copy that `pipeline sync` keeps is behind now; its seconds are those of its status."""
    end, master_end = copy.replica_end, _log_end(master, master.status())
    row = replace(blank, kind="copy", broker_offset=master_end, consumer_offset=end, bytes=max(0, master_end - end))
    row = replace(row, error=copy.error or None)
    if not row.bytes:
        return replace(row, messages=0, messages_exact=True, seconds=0.0)
    age = None if copy.in_step_ms is None else max(0, now_ms() - copy.in_step_ms) / 1000
    return replace(_count_records(master, row, end, master_end, now_ms()), seconds=age)


def _log_end(broker: LiveBroker, status: dict[str, Any] | None) -> int:
    return status["logEnd"] if status else int(broker.runtime_info()["commitLogMaxOffset"])


def _view_of(master: dict[str, Any] | None, replica: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a Twinlog master knows of a Twinlog replica."""
    if master is None or replica is None:
        return None
    views = (view for view in master.get("replicas", []) if not view.get("observer"))
    return next((view for view in views if view.get("identity") == replica.get("instance")), None)


def _count_records(master: LiveBroker, row: LagRow, begin: int, end: int, now_ms: int) -> LagRow:
    """Count the first records that the replica lacks; estimate the rest from their size."""
    missing = LagEstimate(begin, end)
    while (at := missing.wanted) is not None:
        (record,) = master.records_at([at])
        missing.take(record)
    if missing.messages is None:
        return row
    age = age_s(now_ms, missing.oldest_ms)
    return replace(row, messages=missing.messages, messages_exact=missing.is_exact, seconds=age)


def age_s(now_ms: int, stored_ms: int | None) -> float | None:
    return None if stored_ms is None else max(0, now_ms - stored_ms) / 1000
