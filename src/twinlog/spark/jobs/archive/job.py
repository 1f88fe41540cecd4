"""Messages of brokers or stores as a Parquet, Delta or Iceberg table, each of them once, up to now or until stopped.

    archive(spark, ArchiveJob(target="/data/archive", name_server="127.0.0.1:9876", topics=("Orders",)))
    read_archive(spark, "/data/archive").where("topic = 'Orders' and day = date'2026-11-15'")

One stream fills one archive, and its checkpoint is inside. The tasks of a Parquet batch write staged files (see
`source`), which become part of the archive by one commit (see `layout`): a run may be killed at any time and started
again, and every reader of Parquet sees each message once. Delta and Iceberg have a log of their own for that (see
`tables`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.spark.jobs.archive.archive_plan import ArchiveJob, check_job
from twinlog.spark.jobs.archive.checkpoint import drop_torn
from twinlog.spark.jobs.archive.files import finish_last_batch, held
from twinlog.spark.jobs.archive.lakes import job as lakes
from twinlog.spark.jobs.archive.lakes.job import fill
from twinlog.spark.jobs.archive.lakes.tables import BatchWriter, read_live
from twinlog.spark.jobs.archive.layout import (
    TABLE_FORMATS,
    ArchiveHeader,
    BadArchive,
    TopicTotals,
    check_fits,
    existing_header,
    load_commit,
    load_header,
    save_header,
)
from twinlog.spark.jobs.archive.query import ArchiveFailed, archive_spec, cause_of, follow, stream_writer
from twinlog.spark.jobs.archive.source import ArchivingReader
from twinlog.spark.jobs.archive.tables import job as tables
from twinlog.spark.jobs.archive.tables.read_tables import read_table
from twinlog.spark.jobs.archive.tables.table import TablePlace
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.positions import find_queues
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What one run added."""

    target: str
    format: str
    batches: int
    topics: Mapping[str, TopicTotals]
    unparsed: int = 0  # rows that do not parse, which the second table has
    unparsed_target: str = ""
    notes: tuple[str, ...] = ()  # what happened to the table's columns

    @property
    def total(self) -> TopicTotals:
        return sum(self.topics.values(), TopicTotals())


def archive(
    spark: SparkSession, job: ArchiveJob, report: ReportProgress = quiet, *, is_over: Callable[[], bool] = lambda: False
) -> ArchiveSummary:
    """Add what is new to the archive. A run with `every` continues until `is_over()`."""
    report(JobProgress("checking the source"))
    check_before_start(job)
    if job.format in TABLE_FORMATS:
        return _archive_to_tables(spark, job, report, is_over)
    if not job.place.is_local:
        return _archive_to_lake(spark, job, report, is_over)
    root = job.root
    _prepare(root, job)
    with held(root / "_run.lock", f"another run fills {root}: wait for its end, or archive to another directory"):
        drop_torn(root, finish_last_batch(root).batch)
        run = uuid.uuid4().hex
        writer = stream_writer(spark, job, root, run)
        query = writer.trigger(**({"processingTime": job.every} if job.every else {"availableNow": True})).start()
        try:
            follow(query, job, run, report, is_over)
        finally:
            if query.isActive:
                query.stop()
        commit = load_commit(root)
        ours = commit.run == run
        return ArchiveSummary(str(root), job.format, commit.batches if ours else 0, commit.topics if ours else {})


def _archive_to_tables(
    spark: SparkSession, job: ArchiveJob, report: ReportProgress, is_over: Callable[[], bool]
) -> ArchiveSummary:
    try:
        done = tables.fill_tables(spark, job, report, is_over)
    except SparkSourceError:
        raise
    except Exception as problem:  # of Spark: the cause is somewhere in a long report
        raise ArchiveFailed(cause_of(problem)) from problem
    filled, second = done.filled, str(job.unparsed_place) if job.parse else ""
    return ArchiveSummary(
        str(job.place), job.format, filled.batches, filled.topics, filled.unparsed, second, done.notes
    )


def _archive_to_lake(
    spark: SparkSession, job: ArchiveJob, report: ReportProgress, is_over: Callable[[], bool]
) -> ArchiveSummary:
    lake = open_lake(spark, job.place)
    spec = archive_spec(job, str(job.place), "")
    try:
        added = fill(lake, job, ArchivingReader(spec), BatchWriter(spark, lake, spec), report, is_over)
    except SparkSourceError:
        raise
    except Exception as problem:  # of Spark: the cause is somewhere in a long report
        raise ArchiveFailed(cause_of(problem)) from problem
    return ArchiveSummary(str(job.place), job.format, added.batches, added.topics)


def read_archive(
    spark: SparkSession,
    target: str | Path,
    *,
    version: int | None = None,
    catalog: Mapping[str, str] | None = None,
    table: str | None = None,
) -> DataFrame:
    """The archive as a table: the columns of messages in their order, what was parsed, and `day`.

    On a lake, and of a table format, these are the files that count now: load it again to see what was added since.
    `version` is one of Delta or a snapshot of Iceberg; `catalog` and `table` are those of the archive.
    """
    place = parse_address(target, "archive")
    if not place.is_local:
        lake = open_lake(spark, place)
        found = lakes.existing_header(lake)
        if found.format in TABLE_FORMATS:
            return read_table(spark, TablePlace(found.format, lake, catalog or {}, table or ""), version)
        _no_version(found, version)
        return read_live(spark, lake, found).select(*found.schema())
    root = place.local
    header = existing_header(root)
    if header.format in TABLE_FORMATS:
        lake = open_lake(spark, place)
        return read_table(spark, TablePlace(header.format, lake, catalog or {}, table or ""), version)
    _no_version(header, version)
    # The schema is given, or a topic called 2026 would come back as a number.
    return spark.read.schema(ddl(header.schema())).parquet(str(root)).select(*header.schema())


def _no_version(header: ArchiveHeader, version: int | None) -> None:
    if version is not None:
        raise BadOption(f"version {version}: a {header.format} archive keeps no versions, only Iceberg and Delta do")


def check_before_start(job: ArchiveJob) -> None:
    """Raise the errors that would stop the job at its start; needs no Spark and writes nothing."""
    check_job(job)
    if job.place.is_local:  # a lake is opened with the settings of a session
        found = load_header(job.root)
        if found is not None:
            check_fits(job.root, found, job.header())
    _check_source(job)


def _check_source(job: ArchiveJob) -> None:
    """Raise at once what a stream would raise only after its start."""
    if not job.name_server:
        store_options(job.source_options(), streaming=True)
        return
    options = read_options(job.source_options(), streaming=True)
    found = find_queues(options, Cluster(options.cluster, options.read_from))
    if not found and not job.every:
        raise BadOption(f"no topic matches {job.pattern or '.*'!r} at {job.name_server}: nothing to archive")


def _prepare(root: Path, job: ArchiveJob) -> None:
    try:
        if load_header(root) is None:
            root.mkdir(parents=True, exist_ok=True)
            save_header(root, job.header())
    except OSError as error:
        raise BadArchive(f"the archive {root} cannot be written ({error.strerror}): give another directory") from error
