"""The differences between two states of a replica's tables, and how they are applied again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from twinlog.metadata.groups import GroupTable
from twinlog.metadata.table import Changes
from twinlog.metadata.tables import MetadataTables
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, KIND_BY_NAME, table_of
from twinlog.spark.jobs.sync.replicas.replica_state import Change, encode_value
from twinlog.wire.bodies import DataVersion

FORBIDDEN = "forbidden"  # which topics a group may not read: stored with the groups, recorded as a kind of its own
KINDS = (*KIND_BY_NAME, FORBIDDEN)

Image = Mapping[str, Mapping[str, Any]]


def image_of(tables: MetadataTables) -> Image:
    """The rows of every kind as they are now. Rows are replaced and never changed, so this copies no row."""
    image: dict[str, dict[str, Any]] = {}
    for kind in KIND_BY_NAME:
        image[kind] = {str(key): row for key, row in table_of(tables, kind).rows.items()}
    image[FORBIDDEN] = dict(tables.groups.forbidden)
    return image


def versions_of(tables: MetadataTables) -> dict[str, DataVersion]:
    versions = {kind: table_of(tables, kind).version for kind in KIND_BY_NAME}
    return {**versions, FORBIDDEN: tables.groups.version}


def differences(old: Image, new: Image, versions: Mapping[str, DataVersion]) -> list[Change]:
    """Every row that is new, different or gone, by kind and key."""
    found = []
    for kind in KINDS:
        before, after = old[kind], new[kind]
        keys = {key for key, row in after.items() if key not in before or before[key] != row}
        keys |= before.keys() - after.keys()
        for key in sorted(keys):
            was, now = (encode_value(rows[key]) if key in rows else None for rows in (before, after))
            found.append(Change(kind, key, was, now, versions[kind]))
    return found


def adopt_again(tables: MetadataTables, changes: Iterable[Change]) -> None:
    """Make the tables hold the new value and version of every change; no effect if they hold it already."""
    by_kind: dict[str, list[Change]] = {}
    for change in changes:
        by_kind.setdefault(change.kind, []).append(change)
    for kind, found in by_kind.items():
        version = found[-1].version
        if kind == FORBIDDEN:
            _forbid_again(tables.groups, found)
            continue
        table: Any = table_of(tables, kind)
        row_type = KIND_BY_NAME[kind].row_type
        rows = {one.key: msgspec.json.decode(one.new, type=row_type, strict=False) for one in found if one.new}
        if kind == DELAY_OFFSETS.name:
            table.adopt({int(level): offset for level, offset in rows.items()}, version)
            continue
        table.apply(Changes(version, rows, [one.key for one in found if one.new is None]))


def _forbid_again(groups: GroupTable, changes: Iterable[Change]) -> None:
    forbidden: dict[str, dict[str, int]] = {group: dict(topics) for group, topics in groups.forbidden.items()}
    for change in changes:
        forbidden[change.key] = {} if change.new is None else msgspec.json.decode(change.new, type=dict[str, int])
    groups.adopt_forbidden(forbidden)
