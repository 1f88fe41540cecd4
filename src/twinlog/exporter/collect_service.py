"""Collects from all brokers of a cluster, each in a task of its own, and keeps the text for the next scrape.

A broker that hangs holds up its own task alone. Its snapshot is dropped when a round fails, or when it gets too old
because a round does not end, so that its series disappear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.client import Admin
from twinlog.client.admin.calls import named_brokers
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.exporter.broker_round import BrokerRounds, RoundLimits
from twinlog.exporter.exporter_names import broker_rows, cluster_rows
from twinlog.exporter.facts import BrokerFacts, BrokerPlace
from twinlog.exporter.families import Families, Metric, Row
from twinlog.exporter.native_names import native_rows
from twinlog.exporter.replica_names import replica_rows
from twinlog.exporter.runtime_names import runtime_rows
from twinlog.observe.cluster.broker_groups import Group, gather_groups
from twinlog.telemetry.fence import Fence
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_BROKER = ("cluster", "broker", "broker_id", "address")
UP = Metric("twinlog_exporter_broker_up", "1 while a broker answers", _BROKER)
AGE = Metric("twinlog_exporter_snapshot_age_seconds", "Age of what is shown of a broker", _BROKER)
ROUND = Metric("twinlog_exporter_round_seconds", "How long the last round of questions took", _BROKER)
REQUESTS = Metric("twinlog_exporter_requests", "Requests to a broker", _BROKER, "counter")
FAILURES = Metric("twinlog_exporter_failures", "Rounds that a broker did not answer", _BROKER, "counter")
NAMES_UP = Metric("twinlog_exporter_name_server_up", "1 while a name server answers", ())
SERIES = Metric("twinlog_exporter_series", "Series in the last snapshot", ())
RENDER = Metric("twinlog_exporter_render_seconds", "How long the text took to make", ())


@dataclass(slots=True)
class Watched:
    """One broker, and the task that asks it."""

    place: BrokerPlace
    rounds: BrokerRounds
    task: asyncio.Task[None] | None = None
    facts: BrokerFacts | None = None
    pair: Group | None = None  # of a master: itself and its replicas
    taken_s: float = 0.0
    round_s: float = 0.0
    failures: int = 0
    error: str = ""


@dataclass(slots=True)
class _Text:
    body: bytes = b""
    series: int = 0
    seconds: float = 0.0
    made_of: tuple[BrokerFacts | None, ...] = field(default_factory=tuple)


class CollectService:
    """Runs until it is cancelled; `exposition` is what a scrape gets."""

    def __init__(
        self,
        admin: Admin,
        limits: RoundLimits,
        *,
        interval_s: float = 15.0,
        ticks_s: Callable[[], float] = time.monotonic,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._admin, self._limits, self._interval_s = admin, limits, interval_s
        self._ticks_s, self._on_ready = ticks_s, on_ready
        self._watched: dict[BrokerPlace, Watched] = {}
        self._names_up = False
        self._text = _Text()
        self._changed = asyncio.Event()
        self._fence = Fence()

    def age_s_max(self, watched: Watched) -> float:
        """An older snapshot is not shown. Rounds of a broker with very many topics take longer than the interval."""
        return 3 * self._interval_s + 30 + 2 * watched.round_s

    async def run(self) -> None:
        async with self._admin, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fence.run("text", self._render_for_ever))
            await self._fence.run("brokers", lambda: self._follow_brokers(tasks))

    def exposition(self) -> bytes:
        """The last text, and the exporter's own numbers as of now."""
        own = Families()
        own.add(self._own_rows())
        return self._text.body + own.text()

    # -- who is there --------------------------------------------------------------------------

    async def _follow_brokers(self, tasks: asyncio.TaskGroup) -> None:
        first = True
        while True:
            try:
                info = await self._admin.cluster_info()
            except REQUEST_FAILURES as error:
                if self._names_up or first:
                    log.warning("no name server answers", error=str(error))
                self._names_up = False
            else:
                self._names_up = True
                self._watch_only(_places(info), tasks)
            if first:
                first = False
                self._on_ready()
            await asyncio.sleep(self._interval_s)

    def _watch_only(self, places: Iterable[BrokerPlace], tasks: asyncio.TaskGroup) -> None:
        places = set(places)
        for place in [place for place in self._watched if place not in places]:
            gone = self._watched.pop(place)
            if gone.task is not None:
                gone.task.cancel()
            self._changed.set()
        for place in sorted(places - self._watched.keys(), key=lambda one: (one.cluster, one.name, one.broker_id)):
            watched = Watched(place, BrokerRounds(self._admin, place, self._limits))
            self._watched[place] = watched
            watched.task = tasks.create_task(self._fence.run(place.address, lambda w=watched: self._ask_for_ever(w)))

    async def _ask_for_ever(self, watched: Watched) -> None:
        while True:
            began = self._ticks_s()
            try:
                facts, pair = await asyncio.gather(watched.rounds.facts(), self._pair_of(watched.place))
            except REQUEST_FAILURES as error:
                self._failed(watched)
                if str(error) != watched.error:
                    watched.error = str(error)
                    log.warning("a broker does not answer", broker=watched.place.address, error=watched.error)
            except Exception:  # an answer that nobody foresaw: the fence logs it
                self._failed(watched)
                raise
            else:
                watched.facts, watched.pair, watched.taken_s = facts, pair, self._ticks_s()
                watched.round_s, watched.error = watched.taken_s - began, ""
            self._changed.set()
            await asyncio.sleep(max(self._interval_s - (self._ticks_s() - began), self._interval_s / 10))

    def _failed(self, watched: Watched) -> None:
        watched.facts = watched.pair = None
        watched.failures += 1
        self._changed.set()

    async def _pair_of(self, place: BrokerPlace) -> Group | None:
        """A master and its replicas."""
        if not place.is_master:
            return None
        found = await gather_groups(self._admin, broker=place.address)
        return next((pair for pair in found if pair.name == place.name), None)

    # -- what is shown -------------------------------------------------------------------------

    async def _render_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._changed.wait()
            except TimeoutError:  # a snapshot may have become too old
                pass
            self._changed.clear()
            shown = self._shown()
            made_of = tuple(watched.facts for watched in shown)
            if not _are_same(made_of, self._text.made_of):
                began = self._ticks_s()
                try:  # in a thread: tens of thousands of series take a second
                    body, series = await asyncio.to_thread(_render, [(one.facts, one.pair) for one in shown])
                except Exception:
                    self._text = _Text()  # rather nothing than old numbers
                    raise
                self._text = _Text(body, series, self._ticks_s() - began, made_of)
            await asyncio.sleep(min(1.0, self._interval_s))

    def _shown(self) -> list[Watched]:
        now_s = self._ticks_s()
        found = [one for one in self._watched.values() if one.facts is not None]
        return [one for one in found if now_s - one.taken_s < self.age_s_max(one)]

    def _own_rows(self) -> Iterator[Row]:
        shown, now_s = {id(one) for one in self._shown()}, self._ticks_s()
        for one in self._watched.values():
            place = one.place
            labels = (place.cluster, place.name, str(place.broker_id), place.address)
            yield UP, labels, float(id(one) in shown)
            if id(one) in shown:
                yield AGE, labels, now_s - one.taken_s
                yield ROUND, labels, one.round_s
            yield REQUESTS, labels, one.rounds.requests
            yield FAILURES, labels, one.failures
        yield NAMES_UP, (), float(self._names_up)
        yield SERIES, (), self._text.series
        yield RENDER, (), self._text.seconds


def _are_same(ours: Sequence[object], theirs: Sequence[object]) -> bool:
    """The same objects, kept alive by both sides: a new object may have the id of one that is gone."""
    return len(ours) == len(theirs) and all(one is other for one, other in zip(ours, theirs, strict=True))


def _render(found: list[tuple[BrokerFacts | None, Group | None]]) -> tuple[bytes, int]:
    families = Families()
    masters = [facts for facts, _ in found if facts is not None and facts.place.is_master]
    for facts in masters:
        families.add(runtime_rows(facts))
        families.add(broker_rows(facts))
        families.add(native_rows(facts))
    families.add(cluster_rows(masters))
    for _, pair in found:
        if pair is not None:
            families.add(replica_rows(pair))
    return families.text(), families.series


def _places(info: Any) -> Iterator[BrokerPlace]:
    for cluster, name in named_brokers(info):
        known = info.broker_addr_table.get(name)
        for number, address in (known.broker_addrs if known is not None else {}).items():
            yield BrokerPlace(cluster, name, number, address)
