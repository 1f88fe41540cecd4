"""Removes old versions of a table, and files that no version needs.

A reader may work with a version for as long as the retention after another one replaced it: the age of a version is
counted from that moment, not from when it was made. Files that no commit names are removed when they are older than the
retention, so it must be longer than a batch takes. Their times are those of the store's clock, so what this machine's
clock is ahead of it is added to the retention.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinlog.base.clock import wall_clock_ms
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.jobs.archive.tables.read_tables import below, existing_table
from twinlog.spark.jobs.archive.tables.table import TablePlace

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.tables.delta import DeltaArchive
    from twinlog.spark.jobs.archive.tables.iceberg import IcebergTable
    from twinlog.spark.lake.lake import Lake

RETENTION_S_MIN = 3600
_AHEAD_MS_MIN = 60_000  # clocks that differ by less are taken for equal: stores round their times
_MINE = ("data/", "metadata/")  # folders of an Iceberg table that this may remove files from


@dataclass(frozen=True, slots=True)
class ExpireSummary:
    """What one run removed; versions of Delta are removed by Delta's own rule for its log."""

    target: str
    versions: int
    files: int
    bytes: int
    versions_left: int


def expire_table(place: TablePlace, retention_s: int, now_ms: int) -> ExpireSummary:
    """Remove what was replaced, or left behind, longer ago than the retention."""
    if retention_s < RETENTION_S_MIN:
        hint = "readers and a running batch need the files of the last hour; give 1h or more"
        raise BadOption(f"a retention of {retention_s} s is too short: {hint}")
    table: Any = existing_table(place)
    retention_s += ahead_ms(place.lake) // 1000
    before_ms = now_ms - retention_s * 1000
    return _expire_delta(table, retention_s) if place.format == "delta" else _expire_iceberg(table, before_ms)


def ahead_ms(lake: Lake) -> int:
    """How far this machine's clock is ahead of that of the store; 0 if it is not."""
    name = f"_clock-{uuid.uuid4().hex}"
    lake.write(name, b"")
    now_ms, made_ms = wall_clock_ms(), _made_ms(lake, name)
    lake.delete([name])
    return 0 if made_ms is None or now_ms - made_ms < _AHEAD_MS_MIN else now_ms - made_ms


def _expire_delta(table: DeltaArchive, retention_s: int) -> ExpireSummary:
    from deltalake.exceptions import DeltaError

    from twinlog.spark.jobs.archive.tables.delta import KEEP_LOG

    lake = table.place.lake
    sizes = {entry.name: entry.size for entry in lake.list("topic=")}
    known = len(table.versions())
    try:
        options: Any = {"dry_run": False, "enforce_retention_duration": False, "full": True}
        names = table.table.vacuum(math.ceil(retention_s / 3600), **options, post_commithook_properties=KEEP_LOG)
        table.repeat_last()
        table.table.create_checkpoint()
        table.table.cleanup_metadata()
    except DeltaError as error:
        what = str(error).splitlines()[0]
        raise BadArchive(f"{lake.root} was not cleaned completely ({what}): run again") from error
    left = len(table.versions())
    return ExpireSummary(str(lake.root), known - left, len(names), sum(sizes.get(name, 0) for name in names), left)


def _expire_iceberg(table: IcebergTable, before_ms: int) -> ExpireSummary:
    old = old_snapshots(table, before_ms)
    if old:
        table.forget(old)
    lake = table.place.lake
    removed = _old_files(lake, _needed(table), before_ms)
    lake.delete(name for name, _ in removed)
    left = len(table.versions())
    return ExpireSummary(str(lake.root), len(old), len(removed), sum(size for _, size in removed), left)


def old_snapshots(table: IcebergTable, before_ms: int) -> list[int]:
    """Snapshots that were replaced before this time; the current one, branches and tags stay."""
    metadata = table.table.refresh().metadata
    replaced = {one.parent_snapshot_id: one.timestamp_ms for one in table.ancestors()}
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    # A snapshot that is not an ancestor of the current one was taken back; that happened after it was made.
    newest_change = max((entry.timestamp_ms for entry in metadata.snapshot_log), default=0)
    return [
        one.snapshot_id
        for one in metadata.snapshots
        if one.snapshot_id not in kept and replaced.get(one.snapshot_id, newest_change) < before_ms
    ]


def _needed(table: IcebergTable) -> set[str]:
    """The names of all files that a version of the table needs."""
    fresh = table.table.refresh()
    lake, io = table.place.lake, fresh.io
    found = {fresh.metadata_location, *(entry.metadata_file for entry in fresh.metadata.metadata_log)}
    found |= {one.statistics_path for one in (*fresh.metadata.statistics, *fresh.metadata.partition_statistics)}
    manifests = {}
    for snapshot in fresh.metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(io)}
    for path, manifest in manifests.items():
        found.add(path)
        found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)}
    return {"metadata/version-hint.text", *_names(lake, found)}


def _names(lake: Lake, addresses: Iterable[str]) -> Iterable[str]:
    for address in addresses:
        try:
            yield below(lake, address)
        except BadArchive:
            continue  # in a place of somebody else, where nothing is removed


def _old_files(lake: Lake, needed: set[str], before_ms: int) -> list[tuple[str, int]]:
    found = []
    for folder in _MINE:
        for entry in lake.list(folder):
            if entry.name not in needed:
                made_ms = _made_ms(lake, entry.name)
                if made_ms is not None and made_ms < before_ms:
                    found.append((entry.name, entry.size))
    return found


def _made_ms(lake: Lake, name: str) -> int | None:
    """When the file was written, by the store's clock."""
    files, path = lake.table_file(name)
    found = files.get_file_info(path).mtime_ns
    return None if found is None else found // 1_000_000
