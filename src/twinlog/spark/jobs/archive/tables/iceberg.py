"""An archive as an Iceberg table, committed with pyiceberg.

Each batch is one snapshot whose summary has the batch's properties (see `commits`): the first that are found on the
way from the current snapshot back are those of the table. A compaction copies them into its own snapshot. The table's
properties have them too, for the case that somebody expires the snapshots before one of his own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT

from twinlog.spark.ddl_types import type_text
from twinlog.spark.jobs.archive.layout import BadArchive, StagedFile
from twinlog.spark.jobs.archive.tables.commits import TableCommit, decode_commit
from twinlog.spark.jobs.archive.tables.iceberg_catalog import NAMESPACE, catalog_for, location_of, no_answer
from twinlog.spark.jobs.archive.tables.table import (
    DATA,
    PARTITIONS,
    Conflict,
    FileShape,
    TablePlace,
    Version,
    no_version,
)
from twinlog.spark.schema import Columns, arrow_schema

MADE_BY = "twinlog.archive"  # a property of tables that we made
_FOOTERS_AT_ONCE = 8
# Bounds of bodies and properties are of no use to a query, and long.
_NO_BOUNDS = ("body", "properties")


def open_iceberg(place: TablePlace) -> IcebergTable | None:
    """The table; None if there is none; BadArchive if somebody else made it."""
    catalog = catalog_for(place.lake, place.catalog)
    try:
        table = catalog.load_table(_identifier(place))
    except NoSuchTableError:
        return None
    except Exception as error:
        raise no_answer(place.catalog, error) if place.catalog else error from error
    if table.properties.get(MADE_BY) is None:
        hint = "give another name with --table, or another directory"
        raise BadArchive(f"the Iceberg table {'.'.join(table.name())} was not made by twinlog pipeline archive: {hint}")
    if table.location() != location_of(place.lake):
        hint = "archive to that directory, or give another name with --table"
        raise BadArchive(f"the Iceberg table {'.'.join(table.name())} is at {table.location()}: {hint}")
    return IcebergTable(place, table)


def create_iceberg(place: TablePlace, columns: Columns) -> IcebergTable:
    catalog = catalog_for(place.lake, place.catalog)
    identifier = _identifier(place)
    schema = assign_fresh_schema_ids(catalog._convert_schema_if_needed(arrow_schema(columns)))
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
        for number, name in enumerate(PARTITIONS)
    ]
    properties = {MADE_BY: "1", "write.format.default": "parquet", "write.parquet.compression-codec": "zstd"}
    properties |= {f"write.metadata.metrics.column.{name}": "counts" for name in _NO_BOUNDS if name in columns}
    try:
        catalog.create_namespace_if_not_exists(identifier[:-1])
        catalog.create_table(identifier, schema, location_of(place.lake), PartitionSpec(*fields), properties=properties)
    except TableAlreadyExistsError:
        pass  # another run was quicker; whether its table fits is checked by the caller
    except Exception as error:
        raise no_answer(place.catalog, error) if place.catalog else error from error
    made = open_iceberg(place)
    assert made is not None
    return made


def _identifier(place: TablePlace) -> tuple[str, ...]:
    parts = tuple(place.name.split(".")) if place.name else (NAMESPACE, place.lake.root.name)
    return parts if len(parts) > 1 else (NAMESPACE, *parts)


class IcebergTable:
    """See `table.ArchiveTable`."""

    def __init__(self, place: TablePlace, table: Table) -> None:
        self.place = place
        self.table = table

    def columns(self) -> Columns:
        schema = small_types(schema_to_pyarrow(self._fresh().schema(), include_field_ids=False))
        return {field.name: type_text(field.type) for field in schema}

    def add_columns(self, added: Columns) -> None:
        with self._fresh().update_schema() as update:
            update.union_by_name(self.table.catalog._convert_schema_if_needed(arrow_schema(added)))

    def file_shape(self, columns: Columns) -> FileShape:
        return FileShape(file_schema(self._fresh().schema(), columns), DATA)

    def last(self) -> TableCommit | None:
        for snapshot in self.ancestors():
            if (found := decode_commit(_summary(snapshot))) is not None:
                return found
        # Somebody expired the snapshots of our batches; the table's properties have the newest of them too.
        return decode_commit(self.table.properties)

    def append(self, files: Sequence[StagedFile], commit: TableCommit) -> None:
        before = self.table.metadata.current_snapshot_id
        transaction = without_retries(self.table.transaction())
        transaction.set_properties(commit.encode())
        append = transaction.update_snapshot(snapshot_properties=commit.encode()).merge_append()
        for file in self.describe(files):
            append.append_data_file(file)
        try:
            append.commit()
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise Conflict(f"the table has another snapshot than {before} now") from error

    def replace(self, old: Sequence[DataFile], new: Sequence[StagedFile], last: TableCommit | None) -> None:
        """Exchange files that hold the same rows; `last` is the table's last batch, which stays the last."""
        transaction = without_retries(self.table.transaction())
        properties = last.encode() if last else {}
        change = _ReplaceFiles(Operation.OVERWRITE, transaction, self.table.io, snapshot_properties=properties)
        for file in old:
            change.delete_data_file(file)
        for file in self.describe(new):
            change.append_data_file(file)
        try:
            change.commit()
            transaction.commit_transaction()
        except (CommitFailedException, ValidationException) as error:
            raise Conflict(str(error)) from error

    def forget(self, snapshots: Sequence[int]) -> None:
        """Remove these snapshots from the table's metadata; their files stay."""
        try:
            self.table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()
        except CommitFailedException as error:
            raise BadArchive(f"{self.place.lake.root} was changed meanwhile ({error}): run again") from error

    def describe(self, files: Sequence[StagedFile]) -> list[DataFile]:
        """What a manifest says about each file; read from the files' footers."""
        table = self.table
        places = [f"{table.location()}/{file.path}" for file in files]
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            return list(pool.map(lambda place: parquet_file_to_data_file(table.io, table.metadata, place), places))

    def versions(self) -> list[Version]:
        return [_version(one) for one in sorted(self._fresh().snapshots(), key=lambda one: one.timestamp_ms)]

    def data_files(self, version: int | None = None) -> list[str]:
        table = self._fresh()
        if version is not None and table.snapshot_by_id(version) is None:
            raise no_version(self.place, version, [one.snapshot_id for one in table.snapshots()])
        tasks = list(table.scan(snapshot_id=version).plan_files())
        if any(task.delete_files for task in tasks):
            hint = "read it with Spark's Iceberg, or compact it there first"
            raise BadArchive(f"rows of the table {'.'.join(table.name())} are deleted in files of their own: {hint}")
        return sorted(task.file.file_path for task in tasks)

    def ancestors(self) -> Iterator[Snapshot]:
        """From the current snapshot back, as far as they are kept."""
        table = self._fresh()
        found = table.current_snapshot()
        while found is not None:
            yield found
            found = table.snapshot_by_id(found.parent_snapshot_id) if found.parent_snapshot_id is not None else None

    def _fresh(self) -> Table:
        try:
            return self.table.refresh()
        except NoSuchTableError as error:
            raise BadArchive(f"the Iceberg table {'.'.join(self.table.name())} is gone: was it dropped?") from error
        except Exception as error:
            raise no_answer(self.place.catalog, error) if self.place.catalog else error from error


class _ReplaceFiles(_OverwriteFiles):
    """A snapshot in which no row came or went; readers of changes skip it."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


def without_retries(transaction: Transaction) -> Transaction:
    """A commit that fails because of another one must not be repeated before our own rules were asked again."""
    transaction._table.metadata.properties["commit.retry.num-retries"] = "0"  # of this object only, it is not saved
    return transaction


def file_schema(schema: Schema, columns: Columns) -> pa.Schema:
    """The Arrow schema of a file with these columns, with Iceberg's ids."""
    whole = small_types(schema_to_pyarrow(schema, include_field_ids=True))
    return pa.schema([whole.field(name) for name in columns])


def small_types(schema: pa.Schema) -> pa.Schema:
    """The schema without Arrow's large types, which pyiceberg uses; fields keep their metadata."""
    return pa.schema([_small(field) for field in schema])


def _small(field: pa.Field) -> pa.Field:
    kind: Any = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_small(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_small(kind.key_field), _small(kind.item_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(one) for one in kind])
    return pa.field(field.name, kind, field.nullable, field.metadata)


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _version(snapshot: Snapshot) -> Version:
    found = _summary(snapshot)
    operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
    batch = decode_commit(found)
    return Version(
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        operation,
        batch.batch if batch and operation == "append" else None,
        int(found.get("added-records", 0)),
        int(found.get("added-data-files", 0)),
    )
