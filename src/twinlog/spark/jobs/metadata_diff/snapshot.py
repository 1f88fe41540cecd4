"""A broker's metadata, from its files or from itself; `replication.metadata.snapshots` has its form."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.metadata.errors import MetadataError
from twinlog.metadata.tables import open_tables
from twinlog.replication.metadata.kinds import GROUPS, TOPICS, find_kind
from twinlog.replication.metadata.snapshots import COMPARED, KINDS, Snapshot, empty_snapshot, merge, snapshot_of
from twinlog.spark.errors import BadOption, SparkSourceError, nearest
from twinlog.spark.jobs.endpoint import Endpoint
from twinlog.spark.live_broker import LiveBroker
from twinlog.wire.errors import WireError


class NoMetadata(SparkSourceError):
    """The metadata of an endpoint cannot be read."""


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


def _of_store(side: Endpoint) -> Snapshot:
    assert side.store is not None
    directory = side.store / "config"
    if not directory.is_dir():
        raise NoMetadata(f"{side} has no directory config: copy it along with the store, or leave metadata out")
    tables, found = open_tables(directory, 0), empty_snapshot()
    for kind in COMPARED:
        table = kind.table(tables)
        file = table.file
        assert file is not None
        loaded = file.load(table.decode_file)
        if file.problem is not None and not file.from_backup:
            raise NoMetadata(f"{file.path} cannot be read ({file.problem}) and has no backup: repair it")
        if loaded is not None:
            merge(found, snapshot_of(kind, loaded))
    return found


def _of_broker(broker: LiveBroker) -> Snapshot:
    found = empty_snapshot()
    for kind in COMPARED:
        merge(found, snapshot_of(kind, broker.table(kind)))
    return found
