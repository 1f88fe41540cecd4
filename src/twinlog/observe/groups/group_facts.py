"""Everything that servers and members report about one consumer group: who reads what, from where, and how far.

In: an Admin and the name of a group. Out: GroupFacts, on which `diagnose_group` decides without I/O.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twinlog.base.system_names import dlq_topic, is_retry_or_dlq
from twinlog.client import Admin, BrokerRefused, MessageQueue, NoRoute, PullStatus
from twinlog.client.admin.calls import named_brokers
from twinlog.client.admin.messages import TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.wire.bodies import ConsumerConnection, SubscriptionData, SubscriptionGroupConfig
from twinlog.wire.codes import RequestCode, ResponseCode

LOOKED_AT_MAX = 100  # newest messages of a queue that a filter is tried on
STUCK_MS_MIN = 60_000  # a listener that has finished nothing for this long
_QUEUES_TRIED_MAX = 16


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str
    kind: str = "TAG"

    def __str__(self) -> str:
        return f"{self.topic}: {self.expression or '*'}" + ("" if self.kind == "TAG" else f" ({self.kind})")

    @property
    def takes_all(self) -> bool:
        return self.kind == "TAG" and self.expression in ("", "*")

    @property
    def meaning(self) -> tuple[str, str, object]:
        """Equal for expressions that mean the same, such as `a||b` and `b || a`."""
        if self.kind != "TAG":
            return self.topic, self.kind, self.expression
        return self.topic, self.kind, frozenset(filter(None, map(str.strip, self.expression.split("||")))) or {"*"}


@dataclass(frozen=True, slots=True)
class AssignedQueue:
    """A queue as the member that reads it describes it."""

    locked: bool
    cached: int  # messages that wait for the listener
    last_pull_ms: int
    last_consume_ms: int
    paused: bool = False
    oldest: int = 0  # offset of the message that waits for longest
    oldest_stored_ms: int = 0  # 0: not known


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One client of the group; what it does not report is empty."""

    client_id: str
    address: str
    language: str = ""
    brokers: tuple[str, ...] = ()  # addresses of the brokers that it is connected to
    subscriptions: tuple[Subscription, ...] = ()
    queues: Mapping[MessageQueue, AssignedQueue] = field(default_factory=dict[MessageQueue, AssignedQueue])
    orderly: bool = False
    polls: bool = False  # it asks for messages, and has no listener
    failed_per_second: float = 0.0
    error: str = ""  # why it could not be asked


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue of a topic, and the group in it."""

    low: int  # oldest offset that is still there
    high: int  # next offset
    committed: int | None  # None: the group has never committed here
    looked_at: int = 0  # newest messages that the group's filter was tried on
    matched: int = 0


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that the group subscribes to or has read; without route it does not exist."""

    name: str
    exists: bool = True
    permissions: Mapping[str, int] = field(default_factory=dict[str, int])  # broker name -> permission
    queues: Mapping[MessageQueue, QueueFacts] = field(default_factory=dict[MessageQueue, QueueFacts])
    refusal: str = ""  # how a pull as this group was refused because the given account may not
    failure: str = ""  # why a broker does not answer a pull as this group


@dataclass(frozen=True, slots=True)
class GroupFacts:
    name: str
    now_ms: int
    brokers: tuple[str, ...] = ()  # addresses of all masters
    masterless: tuple[str, ...] = ()  # names of brokers that have no master now
    known_groups: tuple[str, ...] = ()
    known_topics: tuple[str, ...] = ()
    configs: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict[str, SubscriptionGroupConfig])
    members: tuple[MemberFacts, ...] = ()
    message_model: str = "CLUSTERING"
    subscriptions: tuple[Subscription, ...] = ()  # as the brokers have them: the last heartbeat wins
    topics: Mapping[str, TopicFacts] = field(default_factory=dict[str, TopicFacts])
    dead_letters: int = 0
    account: str = ""  # access key of the members
    refusal: str = ""  # what a member's request about the group was refused with


async def gather_group_facts(
    admin: Admin, group: str, now_ms: int, member: Admin | None = None, expected: Sequence[str] = ()
) -> GroupFacts:
    """Ask name servers, brokers and the members of `group`.

    `member` has the account of the members, if it differs; `expected` are topics that the group should read.
    """
    info = await admin.cluster_info()
    addresses = [info.broker_addr_table[name].broker_addrs.get(0) for _, name in named_brokers(info)]
    masters = tuple(one for one in addresses if one is not None)
    configs, known, connections = dict[str, SubscriptionGroupConfig](), set[str](), dict[str, ConsumerConnection]()
    refusal = ""
    for address in masters:
        table = (await admin.groups(address)).subscription_group_table
        known |= table.keys()
        if group in table:
            configs[address] = table[group]
        if (found := await _connection(admin, address, group)) is not None:
            connections[address] = found
        refusal = refusal or await _refusal(member or admin, address, group)
    first = next(iter(connections.values()), None)
    subscriptions = _subscriptions(connections)
    members = await _members(admin, group, connections, now_ms)
    wanted = {one.topic for one in subscriptions} | {one.topic for each in members for one in each.subscriptions}
    if not wanted and configs:
        with contextlib.suppress(*REQUEST_FAILURES):
            wanted = set(await admin.topics_of_group(group))
    filters = {name: Subscription(name, "*") for name in expected} | {one.topic: one for one in subscriptions}
    names = sorted(name for name in {*wanted, *expected} if not is_retry_or_dlq(name))
    at = {name: info.broker_addr_table[name].broker_addrs.get(0) for _, name in named_brokers(info)}
    knowing = {name for name, address in at.items() if address in configs}
    topics = {name: await _topic(admin, member or admin, group, name, filters.get(name), knowing) for name in names}
    credentials = (member or admin).session.options.credentials
    return GroupFacts(
        group,
        now_ms,
        masters,
        tuple(sorted(name for name, address in at.items() if address is None)),
        tuple(sorted(known)),
        tuple(await admin.topics()),
        configs,
        members,
        first.message_model if first is not None else "CLUSTERING",
        subscriptions,
        topics,
        await _dead_letters(admin, group),
        credentials.access_key if credentials is not None else "",
        refusal,
    )


async def _refusal(member: Admin, address: str, group: str) -> str:
    """Ask what every member asks: who else is in the group."""
    try:
        await member.ask_broker(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    except BrokerRefused as refused:
        return str(refused) if refused.code == ResponseCode.NO_PERMISSION else ""
    except REQUEST_FAILURES:
        return ""
    return ""


async def _connection(admin: Admin, address: str, group: str) -> ConsumerConnection | None:
    try:
        return await admin.consumer_connection(group, address)
    except BrokerRefused as refused:
        if refused.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
            return None
        raise
    except REQUEST_FAILURES:
        return None


def _subscriptions(connections: Mapping[str, ConsumerConnection]) -> tuple[Subscription, ...]:
    found = {
        topic: Subscription(topic, one.sub_string, one.expression_type or "TAG")
        for connection in connections.values()
        for topic, one in connection.subscription_table.items()
        if not is_retry_or_dlq(topic)
    }
    return tuple(found[topic] for topic in sorted(found))


async def _members(
    admin: Admin, group: str, connections: Mapping[str, ConsumerConnection], now_ms: int
) -> tuple[MemberFacts, ...]:
    found = dict[str, MemberFacts]()
    for broker, connection in connections.items():
        for one in connection.connection_set:
            known = found.get(one.client_id) or MemberFacts(one.client_id, one.client_addr, one.language or "")
            found[one.client_id] = replace(known, brokers=(*known.brokers, broker))
    for client_id, known in found.items():
        try:
            info = await admin.running_info(group, client_id)
        except REQUEST_FAILURES as error:
            found[client_id] = replace(known, error=str(error))
            continue
        running = replace(known, **_running(info))
        found[client_id] = replace(running, queues=await _with_store_times(admin, running.queues, now_ms))
    return tuple(found[client_id] for client_id in sorted(found))


async def _with_store_times(
    admin: Admin, queues: Mapping[MessageQueue, AssignedQueue], now_ms: int
) -> dict[MessageQueue, AssignedQueue]:
    """When messages were stored that wait in a queue of which nothing was finished for long: they may be new."""
    found = dict(queues)
    idle = [q for q, one in queues.items() if one.cached and now_ms - one.last_consume_ms > STUCK_MS_MIN]
    for queue in idle[:_QUEUES_TRIED_MAX]:
        with contextlib.suppress(*REQUEST_FAILURES):
            wanted, oldest = subscription_of(queue.topic, "*"), queues[queue].oldest
            result = await admin.queue_calls.pull(TOOLS_GROUP, queue, oldest, wanted, count_max=1)
            stored = next((one.store_timestamp for one in result.messages if one.queue_offset == oldest), 0)
            found[queue] = replace(found[queue], oldest_stored_ms=stored)
    return found


def _running(info: dict[str, Any]) -> dict[str, Any]:
    queues = dict[MessageQueue, AssignedQueue]()
    for key, row in info.get("mqTable", {}).items():
        queue = dict(key)
        place = MessageQueue(queue["topic"], queue["brokerName"], queue["queueId"])
        pulled, consumed = row.get("lastPullTimestamp", 0), row.get("lastConsumeTimestamp", 0)
        queues[place] = AssignedQueue(
            bool(row.get("locked")),
            row.get("cachedMsgCount", 0),
            pulled,
            consumed,
            bool(row.get("paused")),
            row.get("cachedMsgMinOffset", 0),
        )
    subscriptions = (
        Subscription(one["topic"], one.get("subString") or "*", one.get("expressionType") or "TAG")
        for one in info.get("subscriptionSet", [])
        if not is_retry_or_dlq(one["topic"])
    )
    failed = sum(row.get("consumeFailedTPS") or 0.0 for row in info.get("statusTable", {}).values())
    return {
        "queues": queues,
        "subscriptions": tuple(sorted(subscriptions, key=str)),
        "orderly": info.get("properties", {}).get("PROP_CONSUMEORDERLY") == "true",
        "polls": info.get("properties", {}).get("PROP_CONSUME_TYPE") == "CONSUME_ACTIVELY",
        "failed_per_second": failed,
    }


async def _topic(
    admin: Admin, member: Admin, group: str, name: str, wanted: Subscription | None, knowing: set[str]
) -> TopicFacts:
    """`knowing` are the names of the brokers that have the group: others would create it for a pull."""
    try:
        route = await admin.route_data(name)
    except NoRoute:
        return TopicFacts(name, exists=False)
    permissions = {one.broker_name: one.perm for one in route.queue_datas}
    try:
        stats = await admin.topic_stats(name)
    except REQUEST_FAILURES as error:
        refusal, failure = _reasons(error)
        return TopicFacts(name, permissions=permissions, refusal=refusal, failure=failure)
    committed = dict[MessageQueue, int]()
    with contextlib.suppress(*REQUEST_FAILURES):
        rows, _ = await admin.consume_stats(group, name)
        committed = {queue: row.consumer_offset for queue, row in rows.items() if row.consumer_offset >= 0}
    queues = dict[MessageQueue, QueueFacts]()
    readable = {queue for queue in stats if permissions.get(queue.broker_name, 0) & 4}
    refusal = failure = ""
    for number, (queue, bounds) in enumerate(stats.items()):
        facts = QueueFacts(max(bounds.min_offset, 0), max(bounds.max_offset, 0), committed.get(queue))
        if wanted is not None and not (refusal or failure) and queue in readable and number < _QUEUES_TRIED_MAX:
            try:
                subscription = subscription_of(wanted.topic, wanted.expression, wanted.kind)
                if queue.broker_name in knowing:
                    await member.queue_calls.pull(group, queue, facts.high, subscription)
                facts = facts if wanted.takes_all else await _tried(admin, queue, facts, subscription)
            except REQUEST_FAILURES as error:
                refusal, failure = _reasons(error)
        queues[queue] = facts
    return TopicFacts(name, True, permissions, queues, refusal, failure)


def _reasons(error: Exception) -> tuple[str, str]:
    """(a refusal of the account, any other reason)."""
    if isinstance(error, BrokerRefused) and error.code == ResponseCode.NO_PERMISSION:
        return str(error), ""
    return "", str(error)


async def _tried(admin: Admin, queue: MessageQueue, facts: QueueFacts, wanted: SubscriptionData) -> QueueFacts:
    """The group's filter tried on the newest messages."""
    start, matched = max(facts.low, facts.high - LOOKED_AT_MAX), 0
    looked_at = facts.high - start
    while start < facts.high:
        result = await admin.queue_calls.pull(TOOLS_GROUP, queue, start, wanted, count_max=32)
        matched += sum(one.queue_offset < facts.high for one in result.messages)
        if result.status is PullStatus.NO_NEW or result.next_offset <= start:
            break
        start = result.next_offset
    return replace(facts, looked_at=looked_at, matched=matched)


async def _dead_letters(admin: Admin, group: str) -> int:
    try:
        stats = await admin.topic_stats(dlq_topic(group))
    except REQUEST_FAILURES:
        return 0
    return sum(max(row.max_offset - row.min_offset, 0) for row in stats.values())
