"""Consumer groups of a cluster: how far they are in each topic, who their members are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.client import Admin, BrokerRefused
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.wire.bodies import ConsumerConnection, ConsumeStats, convert_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import ANSWER
from twinlog.wire.java_json.fastjson import loads

_ALL_TIMEOUT_MS = 30_000  # a broker with many groups and topics
_BESIDE_BYTES = 256 * 1024  # larger answers are read beside the event loop


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group in one queue."""

    queue_id: int
    broker_offset: int  # next offset of the queue
    consumed: int  # the group's committed offset
    pulled: int  # messages before this offset were given to a member
    last_ms: int  # store time of the last message that was consumed

    @property
    def behind(self) -> int:
        return max(self.broker_offset - self.consumed, 0)

    @property
    def in_flight(self) -> int:
        return max(self.pulled - self.consumed, 0)

    @property
    def ready(self) -> int:
        return max(self.broker_offset - max(self.pulled, self.consumed), 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """A group in one topic on one broker."""

    group: str
    topic: str
    queues: tuple[QueueProgress, ...]
    per_second: float  # messages it took in the last minute, as the broker counts them

    @property
    def behind(self) -> int:
        return sum(queue.behind for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    @property
    def ready(self) -> int:
        return sum(queue.ready for queue in self.queues)

    @property
    def consumed(self) -> int:
        return sum(queue.consumed for queue in self.queues)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One client of a group that is connected."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Members:
    """The clients of a group that are connected to one broker, and what they subscribe to."""

    clients: tuple[GroupMember, ...] = ()
    consume_type: str = ""
    message_model: str = ""
    subscriptions: dict[str, str] = field(default_factory=dict)  # topic -> expression

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == "BROADCASTING"


def progress_of(group: str, stats: ConsumeStats) -> list[Progress]:
    """One row per topic; a broker answers for one topic, or for several together."""
    by_topic: dict[str, list[QueueProgress]] = {}
    for queue, row in sorted(stats.offset_table.items()):
        one = QueueProgress(
            queue.queue_id,
            max(row.broker_offset, 0),
            max(row.consumer_offset, 0),
            max(row.pull_offset, 0),
            max(row.last_timestamp, 0),
        )
        by_topic.setdefault(queue.topic, []).append(one)
    return [Progress(group, topic, tuple(queues), stats.consume_tps) for topic, queues in by_topic.items()]


async def all_progress(admin: Admin, address: str) -> list[Progress]:
    """All groups in all topics of one broker, with one request; BodyError when the answer is too large to be read."""
    code, header = RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}
    body = (await admin.ask_broker(address, code, header, timeout_ms=_ALL_TIMEOUT_MS)).body or b"{}"
    if len(body) < _BESIDE_BYTES:
        return _read_all(body, address)
    return await asyncio.to_thread(_read_all, body, address)  # 40,000 queues take seconds


def _read_all(body: bytes, address: str) -> list[Progress]:
    answer, found = loads(body, ANSWER), list[Progress]()
    for entry in answer.get("consumeStatsList") or []:
        if not isinstance(entry, dict):
            raise BodyError(f"consumeStatsList of {address} has a {type(entry).__name__} where a group should be")
        for group, rows in entry.items():
            for row in rows or []:
                found += progress_of(str(group), convert_body(ConsumeStats, row))
    return found


async def group_progress(admin: Admin, address: str, group: str) -> list[Progress]:
    """One group in all its topics on one broker. `per_second` is then that of all topics together."""
    return progress_of(group, await admin.consume_stats_at(address, group))


async def members_on_broker(admin: Admin, address: str, group: str) -> Members:
    """The group's clients at one broker; without any, an empty value."""
    try:
        answer = await admin.consumer_connection_at(address, group)
    except BrokerRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return Members()
    return members_of(answer)


def members_of(answer: ConsumerConnection) -> Members:
    clients = [
        GroupMember(one.client_id, one.client_addr, (one.language or "OTHER").upper(), one.version)
        for one in answer.connection_set
    ]
    return Members(
        tuple(sorted(clients, key=lambda client: client.client_id)),
        answer.consume_type,
        answer.message_model,
        {topic: row.sub_string for topic, row in sorted(answer.subscription_table.items())},
    )


async def all_members(admin: Admin, addresses: Iterable[str], group: str) -> Members:
    """The group's clients at these brokers, each once; a broker that does not answer adds none."""
    found = Members()
    for address in addresses:
        try:
            here = await members_on_broker(admin, address, group)
        except REQUEST_FAILURES:
            continue
        known = {client.client_id for client in found.clients}
        clients = (*found.clients, *(one for one in here.clients if one.client_id not in known))
        found = Members(
            tuple(sorted(clients, key=lambda client: client.client_id)),
            here.consume_type or found.consume_type,
            here.message_model or found.message_model,
            {**found.subscriptions, **here.subscriptions},
        )
    return found
