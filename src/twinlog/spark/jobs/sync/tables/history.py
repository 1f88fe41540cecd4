"""The history tables of a synchronisation, and queries of them.

    <history>/changes/   every difference of metadata that a tick found: broker, kind, key, seenAt, oldValue, ...
    <history>/ranges/    every range of log bytes that became durable: broker, fromOffset, toOffset, crc32, ...

Rows get their numbers in the replica directory (see `replica_state`) and stay there until they are in a table. A file
of a table appears whole or not at all, and the numbers in it show which rows need not be written again. So each row is
there exactly once, however often a tick is repeated or its process is killed. `AppendedTable.append` and
`AppendedTable.tidy` are all that writes to a table; `table_join` keeps it small.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from twinlog.base.atomic_directory import CannotExchange
from twinlog.base.atomic_file import replacing
from twinlog.base.clock import wall_clock_ms
from twinlog.base.safe_files import open_file
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, OFFSETS, find_kind
from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.spark.jobs.sync.tables import table_join
from twinlog.spark.jobs.sync.tables.lake_table import LakeTable, history_names
from twinlog.spark.jobs.sync.tick_work import BrokerReport, Drained
from twinlog.spark.lake.address import Address, parse_address
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.lake.spark_tables import read_table
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
_COUNTED = (OFFSETS.name, DELAY_OFFSETS.name)  # they change in every tick


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

    changes = _read_changes(spark, parse_address(os.fspath(history), "history"), when)
    seen = changes.where(F.col("seenAt") <= F.lit(when))
    known = find_kind(kind) if kind is not None else None
    for name, wanted in (("broker", broker), ("kind", known.name if known is not None else kind), ("key", key)):
        if wanted is not None:
            seen = seen.where(F.col(name) == wanted)
    last = F.max_by(F.struct("newValue", "version", "seenAt"), F.struct("seenAt", "sequence")).alias("last")
    found = seen.groupBy("broker", "kind", "key").agg(last).where("last.newValue is not null")
    return found.selectExpr(
        "broker", "kind", "key", "last.newValue as value", "last.version as version", "last.seenAt as since"
    )


def _read_changes(spark: SparkSession, place: Address, when: datetime) -> DataFrame:
    if place.is_local:
        changes = spark.read.parquet(str(place / CHANGES))
        check_kept(changes.inputFiles(), when)
        return changes
    lake = open_lake(spark, place)
    names = history_names(lake, CHANGES)
    if not names:
        raise BadOption(f"{place} is not a history of metadata: give what `twinlog pipeline sync --history` writes")
    check_kept(names, when)
    return read_table(spark, lake, names)


def check_kept(files: Iterable[str], when: datetime) -> None:
    """BadOption if a table with these files was shortened so far that it does not know this moment."""
    since_ms = table_join.complete_since_ms(files)
    moment = when if when.tzinfo is not None else when.astimezone()
    if moment.timestamp() * 1000 < since_ms:
        since = datetime.fromtimestamp(since_ms / 1000, UTC)
        raise BadOption(f"{when} is before {since:%Y-%m-%d %H:%M:%S} UTC: the history before it was dropped")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRules:
    """What is kept of the changes: which kinds, how long, and of offsets one row per key and interval."""

    kinds: tuple[str, ...] = ()  # empty: all
    keep_ms: int | None = None
    offsets_every_ms: int = 600_000  # 0: every change


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """How a table is kept small; of rows that are too old, the last of each combination of columns stays."""

    time: str
    keep_ms: int | None = None
    last_of: Sequence[Sequence[str]] = (("broker", "replica"),)  # the highest numbers must not be forgotten
    one_per_ms: int = 0
    order: Sequence[str] = ("replica", "sequence")

    def tidied(self, table: pa.Table, cutoff_ms: int) -> pa.Table:
        table = table_join.kept_rows(table, cutoff_ms, self.time, self.last_of)
        table = table_join.one_per_interval(table, _COUNTED, self.one_per_ms)
        return table.sort_by([(name, "ascending") for name in self.order])


class HistoryTables:
    """Both tables, for the one job that writes them."""

    def __init__(self, place: Path | Lake, rules: HistoryRules | None = None) -> None:
        rules = rules or HistoryRules()
        of_changes = TableRules(
            time="seenAt",
            keep_ms=rules.keep_ms,
            last_of=(("broker", "replica"), ("broker", "kind", "key")),
            one_per_ms=rules.offsets_every_ms,
        )
        self._kinds = rules.kinds
        of_ranges = TableRules(time="copiedAt", keep_ms=rules.keep_ms)
        self._changes, self._ranges = (
            AppendedTable(place / name, schema, kept)
            if isinstance(place, Path)
            else LakeTable(place, name, schema, kept)
            for name, schema, kept in (
                (CHANGES, _CHANGE_SCHEMA, of_changes),
                (RANGES, _RANGE_SCHEMA, of_ranges),
            )
        )
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
            changes += change_rows(report, before.entries, self._kinds)
            ranges += range_rows(report, before.ranges)
            drained[key] = Drained(
                max([before.entries, *(one.sequence for one in report.entries)]),
                max([before.ranges, *(one.sequence for one in report.ranges)]),
            )
        self._changes.append(changes)
        self._ranges.append(ranges)
        self.drained = drained
        for table in (self._changes, self._ranges):
            table.tidy(wall_clock_ms())


def change_rows(report: BrokerReport, after: int, kinds: Sequence[str] = ()) -> list[dict[str, Any]]:
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
        if not kinds or change.kind in kinds
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

    def __init__(self, path: Path, schema: pa.Schema, rules: TableRules) -> None:
        self.path = path
        self._schema = schema
        self._rules = rules
        self._cannot_tidy = False
        shutil.rmtree(table_join.leftover(path), ignore_errors=True)  # of a killed run
        self.tidy(wall_clock_ms())

    def newest(self) -> Mapping[tuple[str, str], int]:
        """The highest number by broker and replica."""
        if not (files := self._files()):
            return {}
        paths = [str(self.path / one.name) for one in files]
        numbers = ds.dataset(paths, schema=self._schema).to_table(["broker", "replica", "sequence"])
        found = numbers.group_by(["broker", "replica"]).aggregate([("sequence", "max")]).to_pylist()
        return {(row["broker"], row["replica"]): row["sequence_max"] for row in found}

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add one file with these rows; when this returns it survives a crash of the machine."""
        if rows:
            name = f"{wall_clock_ms()}-{uuid.uuid4().hex}.parquet"
            self._write(self.path, name, pa.Table.from_pylist(rows, self._schema))

    def tidy(self, now_ms: int) -> None:
        """Join small files and drop old rows, if there are enough of them."""
        if self._cannot_tidy:
            return
        plan = table_join.plan_join(self._files(), keep_ms=self._rules.keep_ms, now_ms=now_ms)
        if plan is None:
            return

        def write(directory: Path) -> None:
            paths = [str(self.path / one.name) for one in plan.files]
            whole = ds.dataset(paths, schema=self._schema).to_table()
            self._write(directory, plan.new_name(uuid.uuid4().hex), self._rules.tidied(whole, plan.cutoff_ms))

        try:
            table_join.exchange_files(self.path, plan, write)
        except CannotExchange as error:
            self._cannot_tidy = True
            log.warning("the files of a table are not joined", table=str(self.path), why=error)
        except OSError as error:
            raise CannotWriteHistory(self.path, error) from error

    def _write(self, directory: Path, name: str, table: pa.Table) -> None:
        try:
            with replacing(directory / name, None, temporary=directory / f".{name}") as out:
                pq.write_table(table, out, compression="zstd")
        except OSError as error:
            raise CannotWriteHistory(self.path, error) from error

    def _files(self) -> list[table_join.TableFile]:
        found = sorted(self.path.glob("[!._]*.parquet"))
        return [table_join.TableFile(one.name, one.stat().st_size) for one in found]
