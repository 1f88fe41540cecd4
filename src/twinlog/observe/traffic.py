"""Topics and consumer groups of a cluster with their rates, asked in rounds of bounded size.

A cluster may have 10,000 topics. Each round asks about the next TOPICS_PER_ROUND of them, and keeps what it knows of
the others; rates are differences between two answers, so they need no statistics of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from twinlog.base.system_names import is_retry_or_dlq, is_system_topic, reply_topic
from twinlog.client import Admin, BadArgument
from twinlog.client.errors import REQUEST_FAILURES

TOPICS_PER_ROUND = 200
GROUPS_PER_ROUND = 100
_AT_ONCE_MAX = 16
_STATS_TIMEOUT_MS = 10_000  # of a broker with many groups
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """A topic over all brokers; None where it is not known yet."""

    name: str
    brokers: int | None = None
    queues: int | None = None
    stored: int | None = None  # messages ever
    held: int | None = None  # messages that are still there
    per_second: float | None = None
    last_ms: int | None = None  # when the newest message was stored
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """A consumer group over all brokers and topics."""

    name: str
    members: int | None = None
    topics: int = 0
    behind: int = 0
    consumed: int = 0
    per_second: float | None = None
    last_ms: int | None = None  # store time of the newest message that it consumed
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    topics: tuple[TopicTraffic, ...] = ()
    groups: tuple[GroupTraffic, ...] = ()
    error: str = ""


class TrafficSurvey:
    """Asks about topics and groups, round by round."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._topics: dict[str, TopicTraffic] = {}
        self._groups: dict[str, GroupTraffic] = {}
        self._next_topic = self._next_group = 0

    async def round(self, masters: Sequence[str], now_ms: int, own_names: Collection[str] = ()) -> Traffic:
        """Ask once; what fails is shown as it was, with the error.

        `own_names` are those of clusters and brokers: each has a topic of its name, which is not shown.
        """
        errors = list[str]()
        try:
            await self._ask_topics(now_ms, own_names)
        except REQUEST_FAILURES as error:
            errors.append(str(error))
        try:
            await self._ask_groups(masters, now_ms)
        except REQUEST_FAILURES as error:
            errors.append(str(error))
        topics = tuple(self._topics[name] for name in sorted(self._topics))
        groups = tuple(self._groups[name] for name in sorted(self._groups))
        return Traffic(topics, groups, "; ".join(dict.fromkeys(errors)))

    async def _ask_topics(self, now_ms: int, own_names: Collection[str]) -> None:
        hidden = {*own_names, *map(reply_topic, own_names)}
        names = [
            name
            for name in await self._admin.topics()
            if not (name in hidden or is_retry_or_dlq(name) or is_system_topic(name))
        ]
        self._topics = {name: self._topics.get(name) or TopicTraffic(name) for name in names}
        chosen, self._next_topic = _turn(names, self._next_topic, TOPICS_PER_ROUND)

        async def ask(name: str) -> None:
            stats = await self._admin.topic_stats(name)
            stored = sum(max(row.max_offset, 0) for row in stats.values())
            held = sum(max(row.max_offset - row.min_offset, 0) for row in stats.values())
            last_ms = max((row.last_update_timestamp for row in stats.values()), default=0)
            before = self._topics[name]
            rate = _rate(stored, before.stored, now_ms, before.asked_ms)
            brokers = len({queue.broker_name for queue in stats})
            self._topics[name] = TopicTraffic(
                name, brokers, len(stats), stored, held, rate, last_ms if last_ms > 0 else None, now_ms
            )

        await _each(chosen, ask)

    async def _ask_groups(self, masters: Sequence[str], now_ms: int) -> None:
        found = dict[str, GroupTraffic]()
        for address in masters:
            answer = await self._admin.broker_consume_stats(address, order=False, timeout_ms=_STATS_TIMEOUT_MS)
            for group, rows in _stats_by_group(answer):
                found[group] = _added(found.get(group) or GroupTraffic(group, asked_ms=now_ms), rows)
        for group, one in found.items():
            before = self._groups.get(group) or GroupTraffic(group)
            rate = _rate(one.consumed, before.consumed if before.asked_ms else None, now_ms, before.asked_ms)
            found[group] = replace(one, per_second=rate, members=before.members)
        self._groups = found
        chosen, self._next_group = _turn(sorted(found), self._next_group, GROUPS_PER_ROUND)

        async def ask(group: str) -> None:
            try:
                members = len((await self._admin.consumer_connection(group)).connection_set)
            except BadArgument:  # nobody is online
                members = 0
            self._groups[group] = replace(self._groups[group], members=members)

        await _each(chosen, ask)


def _stats_by_group(answer: dict[str, Any]) -> Iterable[tuple[str, list[tuple[dict[str, Any], dict[str, Any]]]]]:
    """(group, [(queue, offsets)]) of what a broker answers for all of its groups."""
    for entry in answer.get("consumeStatsList") or []:
        for group, stats in entry.items():
            yield (
                str(group),
                [(dict(key), row) for each in stats or [] for key, row in (each.get("offsetTable") or {}).items()],
            )


def _added(known: GroupTraffic, rows: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> GroupTraffic:
    plain = [(queue, row) for queue, row in rows if not is_retry_or_dlq(str(queue.get("topic", "")))]
    last_ms = max((int(row.get("lastTimestamp") or 0) for _, row in plain), default=0)
    behind = sum(max(0, int(row.get("brokerOffset", 0)) - max(0, int(row.get("consumerOffset", 0)))) for _, row in rows)
    return replace(
        known,
        topics=known.topics + len({queue.get("topic") for queue, _ in plain}),
        behind=known.behind + behind,
        consumed=known.consumed + sum(max(0, int(row.get("consumerOffset", 0))) for _, row in rows),
        last_ms=max(known.last_ms or 0, last_ms) or None,
    )


def _rate(now: int, before: int | None, now_ms: int, before_ms: int) -> float | None:
    """Per second; None without an earlier answer. A topic that was deleted and created again has no rate."""
    if before is None or now_ms <= before_ms or now < before:
        return None
    return (now - before) * 1000 / (now_ms - before_ms)


def _turn(names: Sequence[str], start: int, count: int) -> tuple[list[str], int]:
    """The next `count` of `names`, and where the following turn begins."""
    if len(names) <= count:
        return list(names), 0
    start %= len(names)
    doubled = [*names, *names[:count]]
    return doubled[start : start + count], (start + count) % len(names)


async def _each(names: Iterable[T], ask: Callable[[T], Awaitable[None]]) -> None:
    """Ask for all, some at a time; one that fails is left as it was."""
    room = asyncio.Semaphore(_AT_ONCE_MAX)

    async def one(name: T) -> None:
        async with room:
            try:
                await ask(name)
            except REQUEST_FAILURES:
                return  # a topic that was deleted meanwhile, a broker that has just stopped

    await asyncio.gather(*(one(name) for name in names))
