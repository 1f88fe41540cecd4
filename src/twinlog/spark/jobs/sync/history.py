"""The history tables of a synchronisation, and queries of them.

    <history>/changes/   every difference of metadata that a tick found: broker, kind, key, seenAt, oldValue, ...
    <history>/ranges/    every range of log bytes that became durable: broker, fromOffset, toOffset, crc32, ...

Rows get their numbers in the replica directory (see `replica_state`) and stay there until they are in a table. A file
of a table appears whole or not at all, and the numbers in it show which rows need not be written again. So each row is
there exactly once, however often a tick is repeated or its process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from twinlog.base.atomic_directory import CannotExchange, exchange_directories
from twinlog.base.atomic_file import replacing, sync_directory
from twinlog.base.clock import wall_clock_ms
from twinlog.base.safe_files import open_file
from twinlog.replication.metadata.kinds import find_kind
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.sync.tick_work import BrokerReport, Drained
from twinlog.spark.paths import local_path
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
CHANGES, RANGES = "changes", "ranges"
_TIME = pa.timestamp("us", tz="UTC")
_CHANGE_SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("seenAt", _TIME),
        ("oldValue", pa.string()),
        ("newValue", pa.string()),
        ("version", pa.struct([("stateVersion", pa.int64()), ("timestamp", pa.int64()), ("counter", pa.int64())])),
        ("replica", pa.string()),
        ("sequence", pa.int64()),
    ]
)
_RANGE_SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("fromOffset", pa.int64()),
        ("toOffset", pa.int64()),
        ("crc32", pa.int64()),
        ("records", pa.int64()),
        ("source", pa.string()),
        ("milliseconds", pa.int64()),
        ("copiedAt", _TIME),
        ("replica", pa.string()),
        ("sequence", pa.int64()),
    ]
)
_LOCK = "_lock"
_FILES_MAX = 1000  # a tick may add a file; more than these are joined when a job starts


def metadata_at(
    spark: SparkSession,
    history: str | os.PathLike[str],
    when: datetime,
    *,
    broker: str | None = None,
    kind: str | None = None,
    key: str | None = None,
) -> DataFrame:
    """The metadata at a moment: broker, kind, key, value (JSON), version, and since when the value was valid."""
    from pyspark.sql import functions as F

    seen = spark.read.parquet(str(local_path(os.fspath(history), "history") / CHANGES)).where(
        F.col("seenAt") <= F.lit(when)
    )
    known = find_kind(kind) if kind is not None else None
    for name, wanted in (("broker", broker), ("kind", known.name if known is not None else kind), ("key", key)):
        if wanted is not None:
            seen = seen.where(F.col(name) == wanted)
    last = F.max_by(F.struct("newValue", "version", "seenAt"), F.struct("seenAt", "sequence")).alias("last")
    found = seen.groupBy("broker", "kind", "key").agg(last).where("last.newValue is not null")
    return found.selectExpr(
        "broker", "kind", "key", "last.newValue as value", "last.version as version", "last.seenAt as since"
    )


class AlreadyRunning(SparkSourceError):
    """Two jobs would both add the same rows."""

    def __init__(self, directory: Path) -> None:
        hint = "wait for its end, or give other directories with --to and --history"
        super().__init__(f"{directory} is in use by another synchronisation: {hint}")


class CannotWriteHistory(SparkSourceError):
    """Rows cannot be added to a table."""

    def __init__(self, path: Path, error: OSError) -> None:
        hint = "free space or allow writing, and start again: the rows are still in the replicas"
        super().__init__(f"{path} cannot be written ({error.strerror or error}): {hint}")


@contextlib.contextmanager
def only_writer(*directories: Path) -> Iterator[None]:
    """Lock these directories, which are created, against other synchronisations; at most until the process ends."""
    with contextlib.ExitStack() as stack:
        for directory in dict.fromkeys(one.absolute() for one in directories):
            directory.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(open_file(directory / _LOCK, os.O_RDWR | os.O_CREAT, None), "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(directory) from None
        yield


class HistoryTables:
    """Both tables, for the one job that writes them."""

    def __init__(self, path: Path) -> None:
        self._changes = AppendedTable(path / CHANGES, _CHANGE_SCHEMA)
        self._ranges = AppendedTable(path / RANGES, _RANGE_SCHEMA)
        entries, ranges = self._changes.newest(), self._ranges.newest()
        self.drained: dict[tuple[str, str], Drained] = {
            key: Drained(entries.get(key, 0), ranges.get(key, 0)) for key in entries.keys() | ranges.keys()
        }

    def add(self, reports: Iterable[BrokerReport]) -> None:
        """Append the rows of the reports that are not in the tables."""
        changes: list[dict[str, Any]] = []
        ranges: list[dict[str, Any]] = []
        drained = dict(self.drained)
        for report in reports:
            key = (report.broker, report.replica)
            before = drained.get(key, Drained())
            changes += change_rows(report, before.entries)
            ranges += range_rows(report, before.ranges)
            drained[key] = Drained(
                max([before.entries, *(one.sequence for one in report.entries)]),
                max([before.ranges, *(one.sequence for one in report.ranges)]),
            )
        self._changes.append(changes)
        self._ranges.append(ranges)
        self.drained = drained


def change_rows(report: BrokerReport, after: int) -> list[dict[str, Any]]:
    return [
        {
            "broker": report.broker,
            "kind": change.kind,
            "key": change.key,
            "seenAt": entry.seen_ms * 1000,
            "oldValue": change.old,
            "newValue": change.new,
            "version": {
                "stateVersion": change.version.state_version,
                "timestamp": change.version.timestamp,
                "counter": change.version.counter,
            },
            "replica": report.replica,
            "sequence": entry.sequence,
        }
        for entry in report.entries
        if entry.sequence > after
        for change in entry.changes
    ]


def range_rows(report: BrokerReport, after: int) -> list[dict[str, Any]]:
    return [
        {
            "broker": report.broker,
            "fromOffset": one.begin,
            "toOffset": one.end,
            "crc32": one.crc32,
            "records": one.records,
            "source": one.source,
            "milliseconds": one.milliseconds,
            "copiedAt": one.copied_ms * 1000,
            "replica": report.replica,
            "sequence": one.sequence,
        }
        for one in report.ranges
        if one.sequence > after
    ]


class AppendedTable:
    """A directory of Parquet files with one writer; names with a dot or an underscore in front do not count."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._compact()

    def newest(self) -> Mapping[tuple[str, str], int]:
        """The highest number by broker and replica."""
        if not self._files():
            return {}
        numbers = ds.dataset(self._files(), schema=self._schema).to_table(["broker", "replica", "sequence"])
        found = numbers.group_by(["broker", "replica"]).aggregate([("sequence", "max")]).to_pylist()
        return {(row["broker"], row["replica"]): row["sequence_max"] for row in found}

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add one file with these rows; when this returns it survives a crash of the machine."""
        if rows:
            self._write(pa.Table.from_pylist(rows, self._schema), _new_name())

    def _write(self, table: pa.Table, name: str) -> None:
        try:
            with replacing(self.path / f"{name}.parquet", None, temporary=self.path / f".{name}") as out:
                pq.write_table(table, out, compression="zstd")
        except OSError as error:
            raise CannotWriteHistory(self.path, error) from error

    def _compact(self) -> None:
        """Join many small files into one, in a directory beside this one that then replaces it in one step."""
        aside = self.path.with_name(f".{self.path.name}.new")
        shutil.rmtree(aside, ignore_errors=True)  # of a killed run; it never holds the only copy of a row
        files = self._files()
        if len(files) <= _FILES_MAX:
            return
        whole = ds.dataset(files, schema=self._schema).to_table()
        whole = whole.sort_by([("replica", "ascending"), ("sequence", "ascending")])
        AppendedTable(aside, self._schema)._write(whole, _new_name())
        try:
            exchange_directories(aside, self.path)
            sync_directory(self.path.parent)
        except CannotExchange as error:
            log.warning(
                "the files of a history table are not joined", table=str(self.path), files=len(files), why=error
            )
        shutil.rmtree(aside)

    def _files(self) -> list[str]:
        return sorted(str(one) for one in self.path.glob("[!._]*.parquet"))


def _new_name() -> str:
    return f"{wall_clock_ms()}-{uuid.uuid4().hex}"
