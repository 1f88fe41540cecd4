"""The archive job for table formats: makes or extends the tables, and fills them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.files import held
from twinlog.spark.jobs.archive.lakes.job import open_header
from twinlog.spark.jobs.archive.layout import BadArchive, chosen
from twinlog.spark.jobs.archive.parse.parser import ERROR_COLUMN, ParsePlan, parse_plan, parsed_columns
from twinlog.spark.jobs.archive.query import archive_spec
from twinlog.spark.jobs.archive.source import ArchivingReader
from twinlog.spark.jobs.archive.tables.commits import check_not_begun
from twinlog.spark.jobs.archive.tables.evolution import plan_evolution
from twinlog.spark.jobs.archive.tables.fill import Filled, Run
from twinlog.spark.jobs.archive.tables.table import DATA, ArchiveTable, TablePlace, create_table, open_table
from twinlog.spark.jobs.archive.tables.write_tables import TableBatchWriter, Target
from twinlog.spark.jobs.progress import ReportProgress
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TablesFilled:
    """What one run did."""

    filled: Filled
    notes: tuple[str, ...]


def fill_tables(
    spark: SparkSession, job: ArchiveJob, report: ReportProgress, is_over: Callable[[], bool]
) -> TablesFilled:
    """Add what is new to the table, and to that of rows that do not parse."""
    plan = parse_plan(job.parse, job.parse_into) if job.parse else None
    lake = open_lake(spark, job.place)
    open_header(lake, job.header())
    with alone(lake):
        columns = main_columns(job, plan)
        main, notes = ready_table(TablePlace(job.format, lake, job.catalog, job.table or ""), columns)
        main_target = Target(lake, main.file_shape(columns), job.compression)
        second, second_target = _second(spark, job, plan) if plan else (None, None)
        _check_other_second(spark, job, main)
        spec = replace(archive_spec(job, str(job.place), ""), columns=read_columns(job, plan))
        run = Run(
            uuid.uuid4().hex,
            main,
            second,
            ArchivingReader(spec),
            TableBatchWriter(spark, spec, main_target, second_target, plan),
            plan.digest() if plan else "",
            job.place.name,
        )
        return TablesFilled(run.fill(job.every, report, is_over), notes)


def _second(spark: SparkSession, job: ArchiveJob, plan: ParsePlan) -> tuple[ArchiveTable, Target]:
    place = _second_place(spark, job)
    open_header(place.lake, replace(job.header(), columns=read_columns(job, plan)))
    columns = second_columns(job, plan)
    table, _ = ready_table(place, columns)
    return table, Target(place.lake, table.file_shape(columns), job.compression)


def _second_place(spark: SparkSession, job: ArchiveJob) -> TablePlace:
    name = f"{job.table}_unparsed" if job.table else ""
    return TablePlace(job.format, open_lake(spark, job.unparsed_place), job.catalog, name)


def _check_other_second(spark: SparkSession, job: ArchiveJob, main: ArchiveTable) -> None:
    """A run that was killed may have filled the usual second table, which this one does not fill."""
    usual = replace(job, unparsed=None)
    if job.parse and job.unparsed_place == usual.unparsed_place:
        return
    try:
        found = open_table(_second_place(spark, usual))
        second = found.last() if found else None
    except SparkSourceError:  # a table of somebody else, or no access: nothing of ours is there
        return
    check_not_begun(main.last(), second, usual.unparsed_place)


def read_columns(job: ArchiveJob, plan: ParsePlan | None) -> tuple[str, ...]:
    """What is read of each message: with a parser its body, whether it is kept or not."""
    return chosen((*job.columns, "body")) if plan and job.columns else job.header().columns


def main_columns(job: ArchiveJob, plan: ParsePlan | None) -> Columns:
    messages = {name: MESSAGE_COLUMNS[name] for name in job.header().columns}
    return {**messages, **(parsed_columns(plan) if plan else {}), "day": "date"}


def second_columns(job: ArchiveJob, plan: ParsePlan) -> Columns:
    messages = {name: MESSAGE_COLUMNS[name] for name in read_columns(job, plan)}
    return {**messages, ERROR_COLUMN: "string", "day": "date"}


def ready_table(place: TablePlace, columns: Columns) -> tuple[ArchiveTable, tuple[str, ...]]:
    """The table, with at least these columns, and notes about those that it did not have or keeps."""
    found = open_table(place)
    if found is None:
        _check_new(place)
        return create_table(place, columns), ()
    change = plan_evolution(place.lake.root, found.columns(), columns)
    notes = []
    if change.added:
        found.add_columns(change.added)
        notes.append(f"the table got the columns {', '.join(change.added)}: older rows have null there")
    if change.absent:
        notes.append(f"the table keeps the columns {', '.join(change.absent)}: new rows have null there")
    return found, tuple(notes)


def _check_new(place: TablePlace) -> None:
    """Files without a table are not a new archive: a second table beside them would begin again."""
    for folder in (f"{DATA}/", "topic="):
        if files := place.lake.list(folder, 1):
            what = f"the table {place.name} is not in the catalog" if place.catalog else "no table names them"
            hint = "restore the table's metadata, or archive to another directory"
            raise BadArchive(f"{place.lake.root} has files ({files[0].name}), and {what}: {hint}")


@contextmanager
def alone(lake: Lake) -> Iterator[None]:
    """Refuse a second run at once where a lock is possible; elsewhere its first commit is refused."""
    if not lake.root.is_local:
        yield
        return
    busy = f"another run fills {lake.root}: wait for its end, or archive to another directory"
    try:
        with held(lake.root.local / "_run.lock", busy):
            yield
    except PermissionError as error:
        raise BadOption(f"{lake.root} cannot be written ({error.strerror}): give another directory") from error
