"""A broker's metadata as text by kind, key and field, from its files or from itself; and what two of them differ in.

kind            key             fields
topics          name            readQueueNums, perm, attributes, ...
groups          name            consumeEnable, retryMaxTimes, ..., forbidden
offsets         topic@group     one per queue
delayOffsets    level           offset
dataVersion     kind of table   stateVersion, timestamp, counter
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from twinlog.metadata.errors import MetadataError
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.tables import open_tables
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, OFFSETS, TOPICS, Kind, find_kind
from twinlog.replication.metadata.table_pages import TablePages, decode_answer
from twinlog.spark.errors import BadOption, SparkSourceError, nearest
from twinlog.spark.jobs.endpoint import Endpoint, LiveBroker
from twinlog.wire.bodies import DataVersion
from twinlog.wire.errors import WireError

VERSIONS = "dataVersion"
COMPARED = (TOPICS, GROUPS, OFFSETS, DELAY_OFFSETS)
KINDS = (*(kind.name for kind in COMPARED), VERSIONS)

Fields = dict[str, str]
Snapshot = dict[str, dict[str, Fields]]  # kind -> key -> field -> value


class NoMetadata(SparkSourceError):
    """The metadata of an endpoint cannot be read."""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One difference; None means that this side lacks the key or field. Field * stands for a whole key."""

    kind: str
    key: str
    field: str
    left: str | None
    right: str | None


def compared_kinds(names: Iterable[str]) -> tuple[str, ...]:
    """The names of these kinds as results show them; each may be given in either spelling."""
    found = []
    for name in names:
        kind = find_kind(name)
        shown = name if kind is None else kind.name
        if shown not in KINDS:
            raise BadOption(f"kind {name!r}: {nearest(name, KINDS)}")
        found.append(shown)
    return tuple(found)


def diff(left: Snapshot, right: Snapshot, *, versions: bool = True) -> list[DiffRow]:
    """Everything in which two snapshots differ, in a fixed order."""
    rows = []
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


def read_snapshot(side: Endpoint) -> Snapshot:
    """The metadata of an endpoint as it is now."""
    try:
        return _of_store(side) if side.store is not None else _of_broker(side.broker)
    except (MetadataError, WireError) as error:
        raise NoMetadata(f"{side}: {error}") from error


def is_java(side: Endpoint) -> bool:
    """Whether a Java broker runs there, or was the last to write the files: it breaks their lines, we do not."""
    if side.store is None:
        return side.broker.status() is None
    files = (side.store / "config" / name for name in (TOPICS.file_name, GROUPS.file_name))
    return any(b"\n" in file.read_bytes()[:64] for file in files if file.is_file())


def snapshot_of(kind: Kind, loaded: Any) -> Snapshot:
    """One table, as its file or its broker's answer holds it, as a part of a snapshot."""
    if kind is TOPICS:
        rows = {key: _fields(row, "topicName") for key, row in (loaded.topic_config_table or {}).items()}
    elif kind is GROUPS:
        rows = {key: _fields(row, "groupName") for key, row in (loaded.subscription_group_table or {}).items()}
        for group, topics in (loaded.forbidden_table or {}).items():
            if topics:
                rows.setdefault(group, {})["forbidden"] = _text(topics)
    elif kind is OFFSETS:
        table: Mapping[str, Mapping[int, int]] = loaded.offset_table or {}
        rows = {key: {str(queue): str(offset) for queue, offset in row.items()} for key, row in table.items()}
    else:
        rows = {str(level): {"offset": str(offset)} for level, offset in (loaded.offset_table or {}).items()}
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


def _of_store(side: Endpoint) -> Snapshot:
    assert side.store is not None
    directory = side.store / "config"
    if not directory.is_dir():
        raise NoMetadata(f"{side} has no directory config: copy it along with the store, or leave metadata out")
    tables, found = open_tables(directory, 0), _empty()
    for kind in COMPARED:
        table = kind.table(tables)
        file = table.file
        assert file is not None
        loaded = file.load(table.decode_file)
        if file.problem is not None and not file.from_backup:
            raise NoMetadata(f"{file.path} cannot be read ({file.problem}) and has no backup: repair it")
        if loaded is not None:
            _merge(found, snapshot_of(kind, loaded))
    return found


def _of_broker(broker: LiveBroker) -> Snapshot:
    tables, found = open_tables(None, 0), _empty()
    for kind in COMPARED:
        _merge(found, snapshot_of(kind, _ask_table(broker, kind, kind.table(tables))))
    return found


def _ask_table(broker: LiveBroker, kind: Kind, table: PersistedTable) -> Any:
    pages = TablePages(kind)
    while True:
        answer = broker.ask(kind.request_code, pages.fields())
        if pages.take(decode_answer(kind, table, bytes(answer.body)), answer.fields):
            return pages.table


def _fields(row: Any, name: str) -> Fields:
    return {key: _text(value) for key, value in msgspec.to_builtins(row).items() if key != name and value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _as_text(fields: Fields | None) -> str | None:
    return None if fields is None else _text(fields)


def _empty() -> Snapshot:
    return {kind: {} for kind in KINDS}


def _merge(into: Snapshot, part: Snapshot) -> None:
    for kind, rows in part.items():
        into[kind].update(rows)
