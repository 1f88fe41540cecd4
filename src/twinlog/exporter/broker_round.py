"""One round of questions to one broker.

A round costs some requests for the whole broker and one for each topic and group, at most `concurrency` at a time;
rates and ages are asked only for what moved or waits. The first request that fails on the network ends the round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client import Admin, BrokerRefused, NetError
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.exporter.facts import BrokerFacts, BrokerPlace, ClientStatus, MinuteRate, TopicGroup
from twinlog.exporter.patterns import TopicPatterns
from twinlog.observe.groups.group_progress import Members, Progress, all_progress, group_progress, members_on_broker
from twinlog.observe.topics import TopicOnBroker, topic_on_broker
from twinlog.telemetry.rocketmq_names import is_system_group
from twinlog.wire.errors import BodyError

ACTIVE_MS = 90_000  # rates are those of the last minute; after this they are 0
CLIENT_TIMEOUT_MS = 3_000
CLIENTS_S_MAX = 10.0  # of a round; many silent ones are found in several rounds
SILENT_CLIENT_MS = 600_000  # a client that did not answer is asked again after this

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """How much is asked."""

    concurrency: int = 4
    clients_max: int = 200  # consumers that are asked for their own numbers, in each round
    patterns: TopicPatterns = field(default_factory=TopicPatterns)


class BrokerRounds:
    """The rounds of one broker; it keeps what counts up between them."""

    def __init__(self, admin: Admin, place: BrokerPlace, limits: RoundLimits) -> None:
        self._admin, self._place, self._limits = admin, place, limits
        self._consumed: dict[TopicGroup, tuple[int, int]] = {}  # last sum of offsets, total growth
        self._silent_clients: dict[str, int] = {}
        self.requests = 0

    async def facts(self) -> BrokerFacts:
        """Everything about this broker now; NetError or BrokerRefused when it does not answer."""
        admin, place, address = self._admin, self._place, self._place.address
        runtime = await self._ask(admin.runtime_info(address))
        if not place.is_master:
            return BrokerFacts(place, wall_clock_ms(), runtime)
        configs = (await self._ask(admin.topic_configs(address))).topic_config_table
        groups = (await self._ask(admin.groups(address))).subscription_group_table
        wanted = [config for config in configs.values() if self._limits.patterns.wants(config.topic_name)]
        topics = await self._each(wanted, lambda config: topic_on_broker(admin, address, config))
        found = [one for one in await self._progress(groups) if self._limits.patterns.wants(one.topic)]
        names = sorted({*groups, *(one.group for one in found)})
        members = await self._members([name for name in names if not is_system_group(name)])
        return BrokerFacts(
            place,
            wall_clock_ms(),
            runtime,
            await self._permission(),
            await self._minute("BROKER_PUT_NUMS", place.cluster),
            await self._minute("BROKER_GET_NUMS", place.cluster),
            len(configs),
            len(groups),
            tuple(topics.values()),
            await self._topic_rates(topics.values()),
            tuple(found),
            await self._get_bytes(found),
            await self._send_backs(found, topics),
            await self._waits(found),
            self._count_consumed(found),
            members,
            await self._client_numbers(members),
            await self._producers(),
        )

    # -- parts of a round ----------------------------------------------------------------------

    async def _progress(self, groups: Iterable[str]) -> list[Progress]:
        """All groups with one request; one by one if their answer together is too large."""
        admin, address = self._admin, self._place.address
        try:
            return await self._ask(all_progress(admin, address))
        except BodyError:
            found = await self._each(groups, lambda group: group_progress(admin, address, group))
        rows = [one for rows in found.values() for one in rows]
        moving = {(one.topic, one.group): one for one in rows if one.per_second > 0}

        async def rate(key: TopicGroup) -> float:
            return await self._minute("GROUP_GET_NUMS", "@".join(key)) or 0.0

        rates = await self._each(moving, rate)
        return [replace(one, per_second=rates.get((one.topic, one.group), 0.0)) for one in rows]

    async def _permission(self) -> int | None:
        try:
            value = (await self._ask(self._admin.broker_config(self._place.address))).get("brokerPermission", "")
        except BrokerRefused:  # an account that may only read topics and groups
            return None
        return int(value) if value.isdecimal() else None

    async def _topic_rates(self, topics: Iterable[TopicOnBroker]) -> dict[str, MinuteRate]:
        now_ms = wall_clock_ms()
        active = [topic.name for topic in topics if topic.puts_per_second > 0 or now_ms - topic.last_ms < ACTIVE_MS]

        async def rate(topic: str) -> MinuteRate:
            messages = await self._minute("TOPIC_PUT_NUMS", topic)
            return MinuteRate(messages or 0.0, await self._minute("TOPIC_PUT_SIZE", topic) or 0.0)

        return await self._each(active, rate)

    async def _get_bytes(self, progress: Iterable[Progress]) -> dict[TopicGroup, float]:
        active = [(one.topic, one.group) for one in progress if one.per_second > 0]

        async def rate(key: TopicGroup) -> float:
            return await self._minute("GROUP_GET_SIZE", "@".join(key)) or 0.0

        return await self._each(active, rate)

    async def _send_backs(
        self, progress: Iterable[Progress], topics: dict[Any, TopicOnBroker]
    ) -> dict[TopicGroup, float]:
        """Only of groups whose retry topic got something lately."""
        now_ms = wall_clock_ms()
        recent = {one.name for one in topics.values() if now_ms - one.last_ms < ACTIVE_MS}
        active = [(one.topic, one.group) for one in progress if RETRY_PREFIX + one.group in recent]

        async def count(key: TopicGroup) -> float:
            return await self._minute("SNDBCK_PUT_NUMS", "@".join(key), "sum") or 0.0

        return await self._each(active, count)

    async def _waits(self, progress: Iterable[Progress]) -> dict[TopicGroup, int]:
        """A group that is behind is asked for the age of its oldest message; for the others it is 0."""
        keys = {(one.topic, one.group): one.behind for one in progress}

        async def wait(key: TopicGroup) -> int:
            topic, group = key
            return max((await self._admin.consume_spans(self._place.address, group, topic)).values(), default=0)

        asked = await self._each([key for key, behind in keys.items() if behind], wait)
        return {key: 0 for key, behind in keys.items() if not behind} | asked

    async def _members(self, groups: Iterable[str]) -> dict[str, Members]:
        return await self._each(groups, lambda group: members_on_broker(self._admin, self._place.address, group))

    async def _client_numbers(self, members: dict[str, Members]) -> tuple[ClientStatus, ...]:
        """The numbers of consumers themselves, asked for through the broker. One that is silent costs its own rows."""
        now_ms = wall_clock_ms()
        known = [(group, client) for group, found in members.items() for client in found.clients]
        names = {client.client_id for _, client in known}
        self._silent_clients = {
            name: until_ms for name, until_ms in self._silent_clients.items() if name in names and until_ms > now_ms
        }
        asked = [one for one in known if one[1].client_id not in self._silent_clients]
        until_s = time.monotonic() + CLIENTS_S_MAX

        async def status(one: Any) -> list[ClientStatus]:
            group, client = one
            if time.monotonic() > until_s:
                return []
            try:
                info = await self._admin.running_info_at(
                    self._place.address, group, client.client_id, timeout_ms=CLIENT_TIMEOUT_MS
                )
            except REQUEST_FAILURES:
                self._silent_clients[client.client_id] = now_ms + SILENT_CLIENT_MS
                return []
            table = info.get("statusTable")
            rows = table.items() if isinstance(table, dict) else ()
            place = (client.address, client.client_id, group)
            return [ClientStatus(*place, str(topic), row) for topic, row in rows if isinstance(row, dict)]

        found = await self._each(asked[: self._limits.clients_max], status)
        return tuple(row for rows in found.values() for row in rows)

    async def _producers(self) -> dict[str, tuple[tuple[str, int], ...]]:
        try:
            found = await self._ask(self._admin.producers(self._place.address))
        except BrokerRefused:  # 4.9 has no such request
            return {}
        return {
            group: tuple((str(row.get("language") or "OTHER"), int(row.get("version") or 0)) for row in rows or [])
            for group, rows in found.items()
        }

    def _count_consumed(self, progress: Iterable[Progress]) -> dict[TopicGroup, int]:
        """How far groups moved on since the first round. An offset that was reset does not count backwards."""
        counted: dict[TopicGroup, tuple[int, int]] = {}
        for one in progress:
            last, total = self._consumed.get((one.topic, one.group), (one.consumed, 0))
            counted[one.topic, one.group] = (one.consumed, total + max(one.consumed - last, 0))
        self._consumed = counted
        return {key: total for key, (_, total) in counted.items()}

    # -- asking --------------------------------------------------------------------------------

    async def _minute(self, name: str, key: str, member: str = "tps") -> float | None:
        """A statistic of the last minute; None when the broker has counted nothing for it."""
        try:
            found = await self._ask(self._admin.stats(self._place.address, name, key))
        except BrokerRefused:
            return None
        value = (found.get("statsMinute") or {}).get(member)
        return float(value) if isinstance(value, (int, float)) else None

    async def _ask(self, question: Awaitable[T]) -> T:
        self.requests += 1
        return await question

    async def _each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[Any, T]:
        """The answer for each key, without those that the broker refused, as they were deleted meanwhile, or garbled.

        A failure of the network is the broker's and ends all of them.
        """
        left, found = iter(list(keys)), {}
        failures: list[NetError] = []

        async def work() -> None:
            for key in left:
                if failures:
                    return
                try:
                    found[_hashable(key)] = await self._ask(ask(key))
                except NetError as error:
                    failures.append(error)
                except REQUEST_FAILURES:
                    continue

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._limits.concurrency):
                tasks.create_task(work())
        if failures:
            raise failures[0]
        return found


def _hashable(key: Any) -> Any:
    return getattr(key, "topic_name", key)
