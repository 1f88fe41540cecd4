"""Differences between two endpoints as they are now, or between two moments of a synchronised broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from twinlog.metadata.errors import MetadataError
from twinlog.replication.metadata.snapshots import KINDS, DiffRow, Snapshot, diff, row_fields
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.endpoint import Endpoint
from twinlog.spark.jobs.metadata_diff.history_rows import not_a_history, rows_at
from twinlog.spark.jobs.metadata_diff.snapshot import compared_kinds, read_snapshot
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.lake.address import parse_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, key string, field string, left string, right string"


@dataclass(frozen=True, slots=True)
class Moment:
    """A broker at a time, as the history of a synchronisation has it."""

    history: str
    broker: str | None
    when: datetime

    def __str__(self) -> str:
        return f"{self.broker or 'the broker'} at {self.when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffJob:
    left: Endpoint | Moment
    right: Endpoint | Moment
    kinds: tuple[str, ...] = KINDS  # in either spelling
    versions: bool = False  # two masters never have equal versions, a master and its replica do


@dataclass(frozen=True, slots=True)
class DiffSummary:
    left: str
    right: str
    rows: tuple[DiffRow, ...]

    @property
    def status(self) -> int:
        """0: equal; 1: different."""
        return 1 if self.rows else 0


def metadata_diff(spark: SparkSession | None, job: DiffJob, report: ReportProgress = quiet) -> DiffSummary:
    """What differs; without a session moments of the past are read in this process."""
    sides, kinds = [], compared_kinds(job.kinds)
    for one in (job.left, job.right):
        report(JobProgress(f"reading {one}"))
        sides.append(read_snapshot(one) if isinstance(one, Endpoint) else snapshot_at(spark, one))
    rows = diff(*sides, versions=job.versions)
    return DiffSummary(str(job.left), str(job.right), tuple(row for row in rows if row.kind in kinds))


def as_table(spark: SparkSession, summary: DiffSummary) -> DataFrame:
    """The differences as rows (kind, key, field, left, right)."""
    return spark.createDataFrame([astuple(row) for row in summary.rows], SCHEMA)


def snapshot_at(spark: SparkSession | None, moment: Moment) -> Snapshot:
    """The metadata at a moment, from the table that `twinlog pipeline sync` writes."""
    if spark is None:
        rows = rows_at(moment.history, moment.when, moment.broker)
    else:
        rows = _rows_by_spark(spark, moment)
    if not rows:
        raise BadOption(f"{moment.history} has nothing about {moment}: it began later, or the name is wrong")
    return snapshot_of_rows(rows, moment)


def _rows_by_spark(spark: SparkSession, moment: Moment) -> list[dict[str, Any]]:
    from pyspark.errors import AnalysisException

    from twinlog.spark.jobs.sync.tables.history import metadata_at

    try:
        table = metadata_at(spark, moment.history, moment.when, broker=moment.broker)
        return [row.asDict() for row in table.select("broker", "kind", "key", "value").collect()]
    except AnalysisException as error:
        raise not_a_history(moment.history) from error


def snapshot_of_rows(rows: Iterable[Mapping[str, Any]], moment: Moment) -> Snapshot:
    found: Snapshot = {kind: {} for kind in KINDS}
    brokers = set()
    for row in rows:
        brokers.add(row["broker"])
        try:
            part = row_fields(row["kind"], msgspec.json.decode(row["value"]))
        except (msgspec.DecodeError, MetadataError) as error:
            raise BadOption(f"{moment.history}: {row['kind']} {row['key']} is not readable: {error}") from error
        if part is not None:
            kind, fields = part
            found[kind].setdefault(row["key"], {}).update(fields)
    if len(brokers) > 1:
        names = ", ".join(sorted(brokers))
        raise BadOption(f"{moment.history} holds several brokers ({names}): choose one with --broker")
    return found


def parse_moment(text: str, history: str, broker: str | None) -> Moment:
    """A moment as ISO text; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{text!r} is not a moment: write for example 2026-11-15T12:00 (UTC) or with +01:00") from None
    place = parse_address(history, "--history")
    if place.is_local and not place.local.is_dir():
        raise BadOption(
            f"there is no directory {history}: give the one that `twinlog pipeline sync` writes its history to"
        )
    return Moment(str(place), broker, when if when.tzinfo is not None else when.replace(tzinfo=UTC))
