"""What an archive needs of a table, in either format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.layout import BadArchive, StagedFile
from twinlog.spark.jobs.archive.tables.commits import TableCommit
from twinlog.spark.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from twinlog.spark.lake.lake import Lake

PARTITIONS = ("topic", "day")
DATA = "data"  # the folder of an Iceberg table's files; those of Delta are in topic=.../


class FileShape(NamedTuple):
    """How tasks write the files of a table: their columns, and the folder below the archive that they are in."""

    schema: pa.Schema
    folder: str


class Version(NamedTuple):
    """One state of a table that can still be read."""

    version: int  # a snapshot id of Iceberg, a version of Delta
    made_ms: int
    operation: str
    batch: int | None
    rows_added: int
    files_added: int


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is: its directory and, for Iceberg, its catalog and its name there."""

    format: str
    lake: Lake
    catalog: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


class ArchiveTable(Protocol):
    """A table that an archive fills; every method reads the table's newest state."""

    def columns(self) -> Columns:
        """The table's columns, with their types as DDL."""
        ...

    def add_columns(self, added: Columns) -> None: ...

    def file_shape(self, columns: Columns) -> FileShape:
        """How a file with these columns of the table is written; `topic` and `day` are the table's partitions."""
        ...

    def last(self) -> TableCommit | None:
        """The newest batch that the table holds."""
        ...

    def append(self, files: Sequence[StagedFile], commit: TableCommit) -> None:
        """Add the files of a batch, if nothing else was committed since `last`; Conflict otherwise."""
        ...

    def versions(self) -> list[Version]:
        """All states that can be read, oldest first."""
        ...

    def data_files(self, version: int | None = None) -> list[str]:
        """The addresses of the files that hold the rows; BadArchive if rows of them are deleted apart."""
        ...


def no_version(place: TablePlace, wanted: int, known: Sequence[int]) -> BadArchive:
    some = ", ".join(map(str, sorted(known)[-5:])) or "none"
    return BadArchive(f"{place.lake.root} has no version {wanted}: it may be expired; the newest ones are {some}")


class Conflict(Exception):
    """The table was changed between a look and a commit: look again."""


def open_table(place: TablePlace) -> ArchiveTable | None:
    """The table, made by an archive; None if there is none yet."""
    if place.format == "delta":
        return _delta().open_delta(place)
    return _iceberg().open_iceberg(place)


def create_table(place: TablePlace, columns: Columns) -> ArchiveTable:
    """A new empty table with these columns; they include `topic` and `day`."""
    if place.format == "delta":
        return _delta().create_delta(place, columns)
    return _iceberg().create_iceberg(place, columns)


def _iceberg():
    try:
        from twinlog.spark.jobs.archive.tables import iceberg
    except ModuleNotFoundError as error:
        raise BadOption(f"--format iceberg needs {error.name}: pip install 'twinlog[iceberg]'") from error
    return iceberg


def _delta():
    try:
        from twinlog.spark.jobs.archive.tables import delta
    except ModuleNotFoundError as error:
        raise BadOption(f"--format delta needs {error.name}: pip install 'twinlog[delta]'") from error
    return delta
