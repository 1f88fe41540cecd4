"""Compaction: many small files of an archive become few large ones; readers see either the old or the new files.

A partition (one topic, one day) is rewritten in `_compacting`, sorted by queue and offset, under names that readers of
Parquet ignore. Then its directory and the new one are exchanged in one step of the file system, and the old files are
removed:

    written to _compacting              readers see the old files
    number of rows compared             "
    moved to a directory beside         "
    exchanged                           readers see the new files
    old files removed                   "

A run that is killed leaves only files that readers ignore, and the next run removes them. The exchange happens only if
the partition still holds the files that were read: if a batch arrived in between, the partition is left for the next
run. Delta archives are compacted by Delta.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.spark.jobs.archive.compaction_plan import ORDER, Compaction, CompactJob, CompactSummary, plan_compaction
from twinlog.spark.jobs.archive.files import (
    COMPACT_LOCK,
    Ops,
    finish_last_batch,
    held,
    make_partition,
    partition_files,
    partitions,
    remove_aside,
    swap_place,
)
from twinlog.spark.jobs.archive.lakes import compact as lakes
from twinlog.spark.jobs.archive.lakes.job import existing_header as lake_header
from twinlog.spark.jobs.archive.layout import COMPACTING, TABLE_FORMATS, ArchiveHeader, BadArchive, existing_header
from twinlog.spark.jobs.archive.tables.compact_tables import compact_table
from twinlog.spark.jobs.archive.tables.table import TablePlace
from twinlog.spark.jobs.archive.write import WriteSorted
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rewrite = Callable[[Sequence[Path], Path, int], Sequence[str]]
"""(files, directory, count): write the rows of `files` as about `count` staged files into a new directory.

Returns the names of the files that hold them; other files there were left by attempts that failed."""


def compact(spark: SparkSession, job: CompactJob, report: ReportProgress = quiet) -> CompactSummary:
    """Rewrite the partitions of past days that have many files."""
    if not job.place.is_local:
        lake = open_lake(spark, job.place)
        found = lake_header(lake)
        if found.format in TABLE_FORMATS:
            return compact_table(spark, TablePlace(found.format, lake, job.catalog, job.table or ""), job, report)
        return lakes.compact_lake(lake, job, lakes.rewriter(spark, lake, found, job.compression), report)
    root = job.root
    header = existing_header(root)
    if header.format in TABLE_FORMATS:
        place = TablePlace(header.format, open_lake(spark, job.place), job.catalog, job.table or "")
        return compact_table(spark, place, job, report)
    return compact_files(root, job, _rewriter(spark, header, job.compression), report)


def compact_files(
    root: Path, job: CompactJob, rewrite: Rewrite, report: ReportProgress = quiet, ops: Ops | None = None
) -> CompactSummary:
    """The same for Parquet; `rewrite` writes the rows."""
    ops = ops or Ops()
    busy = f"another run compacts {root}: wait for its end"
    with held(root / COMPACT_LOCK, busy):
        finish_moves(root, ops)
        remove_aside(root, ops)  # of a killed run
        found = {one: partition_files(root, one) for one in partitions(root)}
        plan = plan_compaction(found, job)
        summary = CompactSummary(str(root))
        for number, one in enumerate(plan):
            report(JobProgress(f"compacting {one.partition}", number, len(plan), "partitions"))
            summary = _compact_one(root, one, rewrite, ops, summary)
        remove_aside(root, ops)
    return summary


def finish_moves(root: Path, ops: Ops) -> None:
    """Finish the last batch of a killed archive run, unless another run is active, which does that itself."""
    try:
        with held(root / "_run.lock", "a run is active"):
            finish_last_batch(root, ops)
    except BadArchive:
        pass


def _compact_one(root: Path, one: Compaction, rewrite: Rewrite, ops: Ops, summary: CompactSummary) -> CompactSummary:
    live, name = root / one.partition, uuid.uuid4().hex
    staged, new = root / COMPACTING / name, swap_place(root) / f"{name}.new"
    staged.parent.mkdir(exist_ok=True)
    names = rewrite([live / file for file in one.files], staged, one.count)
    made = {path: path.stat().st_size for path in (staged / file for file in names)}
    rows_before, rows_after = _rows(live / file for file in one.files), _rows(made)
    if rows_before != rows_after:
        raise BadArchive(f"{one.partition} has {rows_before} rows, {rows_after} after rewriting: it stays as it was")
    with held(root / "_lock"):
        unchanged = partition_files(root, one.partition) == dict(one.files)
        if unchanged:
            make_partition(root, live, new, ops)
            for number, path in enumerate(made):
                ops.move(path, new / f"c{name[:12]}-{number:05d}.parquet")
            ops.sync(new)
            ops.exchange(new, live)
            for directory in (live.parent, new.parent):
                ops.sync(directory)
    if unchanged:
        ops.remove_exchanged(new)  # the old files
    ops.remove(staged)  # with files of failed attempts
    if not unchanged:
        return _with(summary, left=(*summary.left, one.partition))
    return _with(
        summary,
        partitions=summary.partitions + 1,
        files_before=summary.files_before + len(one.files),
        files_after=summary.files_after + len(made),
        bytes_before=summary.bytes_before + sum(one.files.values()),
        bytes_after=summary.bytes_after + sum(made.values()),
    )


def _with(summary: CompactSummary, **changes: object) -> CompactSummary:
    return replace(summary, **changes)  # pyright: ignore[reportArgumentType]


def _rows(files: Iterable[Path]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in files)


def _rewriter(spark: SparkSession, header: ArchiveHeader, compression: str) -> Rewrite:
    columns = {name: kind for name, kind in header.schema().items() if name not in ("topic", "day")}

    def rewrite(files: Sequence[Path], directory: Path, count: int) -> list[str]:
        frame = spark.read.schema(ddl(columns)).option("recursiveFileLookup", "true").parquet(*map(str, files))
        frame = frame.coalesce(1) if count == 1 else frame.repartitionByRange(count, *ORDER)
        write = WriteSorted(LocalLake(parse_address(directory.parent, "archive")), directory.name, columns, compression)
        done = frame.sortWithinPartitions(*ORDER).mapInArrow(write, write.YIELDS).collect()
        return sorted(row["path"].rpartition("/")[2] for row in done)

    return rewrite
