"""A broker's metadata as text by kind, key and field, and what two of them differ in. No I/O.

kind            key             fields
topics          name            readQueueNums, perm, attributes, ...
groups          name            consumeEnable, retryMaxTimes, ..., forbidden
offsets         topic@group     one per queue
delayOffsets    level           offset
dataVersion     kind of table   stateVersion, timestamp, counter
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, OFFSETS, TOPICS, Kind
from twinlog.wire.bodies import DataVersion

VERSIONS = "dataVersion"
COMPARED = (TOPICS, GROUPS, OFFSETS, DELAY_OFFSETS)
KINDS = (*(kind.name for kind in COMPARED), VERSIONS)

Fields = dict[str, str]
Snapshot = dict[str, dict[str, Fields]]  # kind -> key -> field -> value


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One difference; None means that this side lacks the key or field. Field * stands for a whole key."""

    kind: str
    key: str
    field: str
    left: str | None
    right: str | None


def diff(left: Snapshot, right: Snapshot, *, versions: bool = True) -> list[DiffRow]:
    """Everything in which two snapshots differ, in a fixed order."""
    rows = list[DiffRow]()
    for kind in KINDS if versions else KINDS[:-1]:
        ours, theirs = left.get(kind, {}), right.get(kind, {})
        for key in sorted(ours.keys() | theirs.keys()):
            one, other = ours.get(key), theirs.get(key)
            if one == other or (kind == VERSIONS and (one is None or other is None)):
                continue  # 4.x keeps no version with some of its tables
            if kind != OFFSETS.name and (one is None or other is None):
                rows.append(DiffRow(kind, key, "*", _as_text(one), _as_text(other)))
                continue
            one, other = one or {}, other or {}
            fields = sorted(one.keys() | other.keys(), key=lambda name: (len(name), name))
            rows += [
                DiffRow(kind, key, name, one.get(name), other.get(name))
                for name in fields
                if one.get(name) != other.get(name)
            ]
    return rows


def snapshot_of(kind: Kind, loaded: Any) -> Snapshot:
    """One table, as its file or its broker's answer holds it, as a part of a snapshot."""
    rows: dict[str, Fields]
    table: Mapping[Any, Any]
    if kind is TOPICS:
        table = loaded.topic_config_table or {}
        rows = {key: _fields(row, "topicName") for key, row in table.items()}
    elif kind is GROUPS:
        table = loaded.subscription_group_table or {}
        rows = {key: _fields(row, "groupName") for key, row in table.items()}
        forbidden: Mapping[str, Any] = loaded.forbidden_table or {}
        for group, topics in forbidden.items():
            if topics:
                rows.setdefault(group, {})["forbidden"] = _text(topics)
    elif kind is OFFSETS:
        table = loaded.offset_table or {}
        rows = {key: {str(queue): str(offset) for queue, offset in row.items()} for key, row in table.items()}
    else:
        table = loaded.offset_table or {}
        rows = {str(level): {"offset": str(offset)} for level, offset in table.items()}
    found: Snapshot = {kind.name: rows}
    if loaded.data_version is not None:
        found[VERSIONS] = {kind.name: version_fields(loaded.data_version)}
    return found


def row_fields(table: str, row: Any) -> tuple[str, Fields] | None:
    """(kind, fields) of one row as JSON has it; None for tables that are not compared."""
    if table == "forbidden":
        return GROUPS.name, {"forbidden": _text(row)}
    if table not in KINDS:
        return None
    if table == DELAY_OFFSETS.name:
        return table, {"offset": _text(row)}
    names = ("topicName", "groupName")
    return table, {str(key): _text(value) for key, value in row.items() if key not in names and value is not None}


def version_fields(version: DataVersion) -> Fields:
    return {
        "stateVersion": str(version.state_version),
        "counter": str(version.counter),
        "timestamp": str(version.timestamp),
    }


def _fields(row: Any, name: str) -> Fields:
    return {key: _text(value) for key, value in msgspec.to_builtins(row).items() if key != name and value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _as_text(fields: Fields | None) -> str | None:
    return None if fields is None else _text(fields)


def empty_snapshot() -> Snapshot:
    return {kind: {} for kind in KINDS}


def merge(into: Snapshot, part: Snapshot) -> None:
    for kind, rows in part.items():
        into[kind].update(rows)
