"""Compaction of a table: many small files of past days become few, in one commit for each topic and day.

Readers see the files of before or those after. The files of before stay until `expire` removes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from twinlog.spark.jobs.archive.compaction_plan import (
    ORDER,
    Compaction,
    CompactJob,
    CompactSummary,
    plan_compaction,
)
from twinlog.spark.jobs.archive.layout import BadArchive, StagedFile
from twinlog.spark.jobs.archive.tables.read_tables import below, existing_table, in_order, read_files
from twinlog.spark.jobs.archive.tables.table import Conflict, TablePlace
from twinlog.spark.jobs.archive.tables.write_tables import TableFileWriter, Target
from twinlog.spark.jobs.archive.write import partition_name
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.schema import Columns, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinlog.spark.jobs.archive.tables.delta import DeltaArchive
    from twinlog.spark.jobs.archive.tables.iceberg import IcebergTable

_TRIES_MAX = 20


def compact_table(
    spark: SparkSession, place: TablePlace, job: CompactJob, report: ReportProgress = quiet
) -> CompactSummary:
    """Rewrite the partitions of past days that have many files."""
    table: Any = existing_table(place)
    if place.format == "delta":
        report(JobProgress(f"compacting {place.lake.root.name}"))
        return _compact_delta(table, job)
    return _compact_iceberg(spark, table, job, report)


def _compact_delta(table: DeltaArchive, job: CompactJob) -> CompactSummary:
    from deltalake.exceptions import DeltaError

    from twinlog.spark.jobs.archive.tables.delta import KEEP_LOG

    filters: list[Any] = [("day", "<", job.before)]
    if job.topics:
        filters.append(("topic", "in", list(job.topics)))
    try:
        done = table.table.optimize.compact(
            partition_filters=filters, target_size=job.file_bytes, post_commithook_properties=KEEP_LOG
        )
    except DeltaError as error:
        what = str(error).splitlines()[0]
        raise BadArchive(f"{table.place.lake.root} was not compacted ({what}): it stays as it was") from error
    table.keep()
    return CompactSummary(
        str(table.place.lake.root),
        partitions=done["partitionsOptimized"],
        files_before=done["numFilesRemoved"],
        files_after=done["numFilesAdded"],
        bytes_before=_total_size(done["filesRemoved"]),
        bytes_after=_total_size(done["filesAdded"]),
    )


def _total_size(metrics: Any) -> int:
    found = json.loads(metrics) if isinstance(metrics, str) else metrics
    return int((found or {}).get("totalSize", 0))


def _compact_iceberg(
    spark: SparkSession, table: IcebergTable, job: CompactJob, report: ReportProgress
) -> CompactSummary:
    found, left = _iceberg_partitions(table)
    plan = plan_compaction(found, job)
    summary = CompactSummary(str(table.place.lake.root))
    for number, one in enumerate(plan):
        report(JobProgress(f"compacting {one.partition}", number, len(plan), "partitions"))
        made = _rewrite(spark, table, one, job.compression)
        if one.partition in left or not _exchange(table, one, made):
            summary = replace(summary, left=(*summary.left, one.partition))
            continue
        summary = replace(
            summary,
            partitions=summary.partitions + 1,
            files_before=summary.files_before + len(one.files),
            files_after=summary.files_after + len(made),
            bytes_before=summary.bytes_before + sum(one.files.values()),
            bytes_after=summary.bytes_after + sum(file.bytes for file in made),
        )
    return summary


def _iceberg_partitions(table: IcebergTable) -> tuple[dict[str, dict[str, int]], set[str]]:
    """The files of each partition, and partitions with rows that are deleted in files of their own."""
    found: dict[str, dict[str, int]] = {}
    deleted = set()
    for task in table.table.refresh().scan().plan_files():
        topic, day = task.file.partition[0], task.file.partition[1]
        partition = partition_name(topic, int(day) if isinstance(day, int) else _days(day))
        found.setdefault(partition, {})[below(table.place.lake, task.file.file_path)] = task.file.file_size_in_bytes
        if task.delete_files:
            deleted.add(partition)
    return {name: files for name, files in found.items() if name not in deleted}, deleted


def _days(day: Any) -> int:
    return (day - type(day)(1970, 1, 1)).days


def _rewrite(spark: SparkSession, table: IcebergTable, one: Compaction, compression: str) -> list[StagedFile]:
    columns = in_order(table.columns())
    frame = read_files(spark, table.place, one.files, columns)
    frame = frame.coalesce(1) if one.count == 1 else frame.repartitionByRange(one.count, *ORDER)
    target = Target(table.place.lake, table.file_shape(columns), compression)
    work = WriteSortedTable(target)
    rows = frame.sortWithinPartitions(*ORDER).mapInArrow(work, ddl(dict(work.YIELDS))).collect()
    return [StagedFile(row.path, row.partition, row.rows, row.bytes) for row in rows]


@dataclass(frozen=True, slots=True)
class WriteSortedTable:
    """For mapInArrow: writes the rows of a partition, in their order, as one file; yields what it wrote."""

    YIELDS: ClassVar[Columns] = {"path": "string", "partition": "string", "rows": "bigint", "bytes": "bigint"}

    target: Target

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableFileWriter(self.target)
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        for file in writer.finish():
            yield pa.record_batch(
                {
                    "path": [file.path],
                    "partition": [file.partition],
                    "rows": pa.array([file.rows], pa.int64()),
                    "bytes": pa.array([file.bytes], pa.int64()),
                }
            )


def _exchange(table: IcebergTable, one: Compaction, made: list[StagedFile]) -> bool:
    """Replace the old files by the new ones in one snapshot; False if some of the old ones are no longer there."""
    for _ in range(_TRIES_MAX):
        last = table.last()
        tasks = {below(table.place.lake, task.file.file_path): task for task in table.table.scan().plan_files()}
        old = [tasks[name] for name in one.files if name in tasks and not tasks[name].delete_files]
        if len(old) < len(one.files):
            return False
        rows = sum(task.file.record_count for task in old)
        if rows != sum(file.rows for file in made):
            what = f"{rows} rows, {sum(file.rows for file in made)} after rewriting"
            raise BadArchive(f"{one.partition} has {what}: it stays as it was")
        try:
            table.replace([task.file for task in old], made, last)
            return True
        except Conflict:
            continue
    return False
