"""How far all groups are behind, now and over time: one request to each master in every round."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.base.clock import wall_clock_ms
from twinlog.client import Admin
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.observe.cluster.history import Series
from twinlog.observe.groups.group_progress import Progress, all_progress
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
INTERVAL_S = 5.0
SERIES_MAX = 4_000
SAMPLES_MAX = 240  # of one series: twenty minutes; all series together are a hundred megabytes at most
_REST = 10  # so many times the time that a round took: large answers cost their brokers much


@dataclass(frozen=True, slots=True)
class Backlog:
    """All groups at one time. A master that did not answer is missing, and named in `silent`."""

    at_ms: int
    rows: Mapping[tuple[str, str], Mapping[str, Progress]] = field(default_factory=dict)  # group, topic -> broker name
    silent: tuple[str, ...] = ()

    def of_group(self, group: str) -> dict[str, Mapping[str, Progress]]:
        """By topic."""
        return {topic: found for (name, topic), found in self.rows.items() if name == group}

    def of_topic(self, topic: str) -> dict[str, Mapping[str, Progress]]:
        """By group."""
        return {group: found for (group, name), found in self.rows.items() if name == topic}

    def behind(self, group: str, topic: str | None = None) -> int:
        """Messages that a group has not consumed, of one topic or of all."""
        return sum(
            progress.behind
            for (name, each), found in self.rows.items()
            if name == group and topic in (None, each)
            for progress in found.values()
        )


class Backlogs:
    """The last round, and a series for each group and topic; a series without new values goes first."""

    def __init__(self) -> None:
        self.latest: Backlog | None = None
        self._series: dict[tuple[str, str], Series] = {}

    @contextlib.asynccontextmanager
    async def followed(self, admin: Admin, masters: Callable[[], Mapping[str, str]]) -> AsyncIterator[None]:
        """Ask again and again within the block; `masters` gives those that answer now."""
        task = asyncio.create_task(self._follow(admin, masters), name="backlogs")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, admin: Admin, masters: Callable[[], Mapping[str, str]]) -> None:
        while True:
            known, began_s = masters(), time.monotonic()
            try:
                if known:
                    await self.round(admin, known, wall_clock_ms())
            except Exception as error:  # the next round may succeed
                log.exception("asking for the offsets of groups failed", error=repr(error))
            await asyncio.sleep(max(INTERVAL_S, _REST * (time.monotonic() - began_s)) if known else 0.2)

    async def round(self, admin: Admin, masters: Mapping[str, str], now_ms: int) -> None:
        """Ask all masters (name -> address) at the same time."""
        names = list(masters)
        asked = await asyncio.gather(*(_ask(admin, masters[name]) for name in names))
        rows: dict[tuple[str, str], dict[str, Progress]] = {}
        for name, found in zip(names, asked, strict=True):
            for progress in found or ():
                rows.setdefault((progress.group, progress.topic), {})[name] = progress
        silent = tuple(name for name, found in zip(names, asked, strict=True) if found is None)
        self.take(Backlog(now_ms, rows, silent))

    def take(self, backlog: Backlog) -> None:
        self.latest = backlog
        for key, found in backlog.rows.items():
            series = self._series.pop(key, None) or Series(SAMPLES_MAX)
            series.add(backlog.at_ms, sum(progress.behind for progress in found.values()))
            self._series[key] = series
        while len(self._series) > SERIES_MAX:
            self._series.pop(next(iter(self._series)))

    def series(self, group: str, topic: str, begin_ms: int) -> list[tuple[int, float | None]]:
        found = self._series.get((group, topic))
        return [] if found is None else found.since(begin_ms)


async def _ask(admin: Admin, address: str) -> Iterable[Progress] | None:
    try:
        return await all_progress(admin, address)
    except REQUEST_FAILURES:
        return None
