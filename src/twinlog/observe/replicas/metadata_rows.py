"""The metadata tables of a broker as it answers, and in which rows a master and its replica differ."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.client import Admin, BrokerRefused
from twinlog.metadata.tables import open_tables
from twinlog.observe.cluster.replica_view import Version
from twinlog.replication.metadata.kinds import Kind
from twinlog.replication.metadata.snapshots import COMPARED, VERSIONS, DiffRow, Snapshot, diff, merge, snapshot_of
from twinlog.replication.metadata.table_pages import TablePages, decode_answer

DIFFERENCES_SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """All tables of one broker; a kind that it does not give is missing."""

    address: str
    at_ms: int
    snapshot: Snapshot
    missing: tuple[str, ...] = ()
    took_ms: int = 0  # to ask for them

    def rows(self, kind: str) -> int | None:
        return None if kind in self.missing else len(self.snapshot.get(kind, {}))

    def version(self, kind: str) -> Version | None:
        fields = self.snapshot.get(VERSIONS, {}).get(kind)
        return None if fields is None else Version(*(int(fields[n]) for n in ("counter", "timestamp", "stateVersion")))


@dataclass(frozen=True, slots=True)
class Differences:
    """The first rows in which two brokers differ, and how many there are."""

    master: BrokerTables
    replica: BrokerTables
    rows: tuple[DiffRow, ...]
    counts: Mapping[str, int]  # by kind, of all rows

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def count_of(self, kind: str) -> int:
        return self.counts.get(kind, 0)


async def ask_tables(admin: Admin, address: str, now_ms: int) -> BrokerTables:
    """Every compared table of one broker, page by page where it gives pages. Rows become text beside the loop."""
    began = time.monotonic()
    empty, snapshot, missing = open_tables(None, 0), Snapshot(), list[str]()
    for kind in COMPARED:
        snapshot.setdefault(kind.name, {})
        snapshot.setdefault(VERSIONS, {})
        try:
            pages = TablePages(kind)
            while True:
                answer = await admin.ask_broker(address, kind.request_code, pages.fields())
                page = decode_answer(kind, kind.table(empty), bytes(answer.body or b""))
                if pages.take(page, answer.fields):
                    break
            merge(snapshot, await asyncio.to_thread(snapshot_of, kind, pages.table))
        except BrokerRefused:
            missing.append(kind.name)
    return BrokerTables(address, now_ms, snapshot, tuple(missing), int(1000 * (time.monotonic() - began)))


def differences(master: BrokerTables, replica: BrokerTables, shown_max: int = DIFFERENCES_SHOWN_MAX) -> Differences:
    """Row by row; versions are compared apart, and kinds that either side does not give are left out."""
    skipped = {*master.missing, *replica.missing}
    rows = [one for one in diff(master.snapshot, replica.snapshot, versions=False) if one.kind not in skipped]
    return Differences(master, replica, tuple(rows[:shown_max]), Counter(one.kind for one in rows))


def changes(before: BrokerTables, after: BrokerTables, kinds: Collection[Kind] = COMPARED) -> list[DiffRow]:
    """What changed in one broker's tables; left is the old value."""
    wanted = {kind.name for kind in kinds}
    return [one for one in diff(before.snapshot, after.snapshot, versions=False) if one.kind in wanted]
