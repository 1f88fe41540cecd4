"""Compaction on a lake: a record exchanges the files of a partition, and decides for our reader in one step.

    new files staged                readers see the old files
    record of the exchange          `read_archive` sees the new files
    new files moved to their places a plain reader of the directory sees both, for this moment
    old files removed               all readers see the new files

A run that is killed after the record leaves the last two steps to the next run of archive or compaction. A batch that
arrives meanwhile does not matter: the record names the files that it exchanges.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twinlog.spark.jobs.archive.compaction_plan import ORDER, Compaction, CompactJob, CompactSummary, plan_compaction
from twinlog.spark.jobs.archive.lakes.chain import Chain
from twinlog.spark.jobs.archive.lakes.job import remove_staged, tidy
from twinlog.spark.jobs.archive.lakes.live_files import LiveFile, live_files
from twinlog.spark.jobs.archive.lakes.records import COMPACTING, END, EXCHANGE, Placed
from twinlog.spark.jobs.archive.lakes.runs import beating, claim
from twinlog.spark.jobs.archive.lakes.tables import read_files, write_by_spark
from twinlog.spark.jobs.archive.layout import STAGING, ArchiveHeader, BadArchive, StagedFile
from twinlog.spark.jobs.archive.write import WriteSorted
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.lake.lake import Lake, in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rewrite = Callable[[Sequence[LiveFile], str, int], tuple[int, list[StagedFile]]]
"""(files, folder, count): write the rows of `files` as about `count` files of a new folder.

Returns how many rows the old files have, counted apart from writing, and the files that hold them now."""


def compact_lake(lake: Lake, job: CompactJob, rewrite: Rewrite, report: ReportProgress = quiet) -> CompactSummary:
    """Rewrite the partitions of past days that have many files."""
    run = uuid.uuid4().hex
    chain = Chain(lake, COMPACTING, run)
    folder = f"{STAGING}/{COMPACTING}-{run}"
    summary = CompactSummary(str(lake.root))
    with beating(lake, COMPACTING, run):
        chain.begin(claim(lake, chain, COMPACTING))
        tidy(lake, chain, COMPACTING, run)
        found = _settled(lake, chain)
        sizes = {partition: {file.name: file.size for file in files} for partition, files in found.items()}
        plan = plan_compaction(sizes, job)
        for number, one in enumerate(plan):
            report(JobProgress(f"compacting {one.partition}", number, len(plan), "partitions"))
            made = _compact_one(chain, one, found[one.partition], rewrite, f"{folder}/{number}")
            summary = replace(
                summary,
                partitions=summary.partitions + 1,
                files_before=summary.files_before + len(one.files),
                files_after=summary.files_after + len(made),
                bytes_before=summary.bytes_before + sum(one.files.values()),
                bytes_after=summary.bytes_after + sum(file.bytes for file in made),
            )
        chain.add(END)
        remove_staged(lake, f"{folder}/")
    return summary


def _settled(lake: Lake, chain: Chain) -> Mapping[str, list[LiveFile]]:
    """The files that no unfinished record is about: what an archive run publishes now is left to the next run."""
    state, found = live_files(lake)
    removed = {partition: held for partition, held in state.partitions.items() if partition not in found}
    if removed:
        chain.forget(removed)
    moving = {file.name for record in state.unfinished for file in record.adds}
    return {partition: [file for file in files if file.name not in moving] for partition, files in found.items()}


def _compact_one(
    chain: Chain, one: Compaction, files: Sequence[LiveFile], rewrite: Rewrite, folder: str
) -> Sequence[Placed]:
    rows, staged = rewrite(files, folder, one.count)
    written = sum(file.rows for file in staged)
    if rows != written:
        raise BadArchive(f"{one.partition} has {rows} rows, {written} after rewriting: it stays as it was")
    name = uuid.uuid4().hex[:12]
    adds = tuple(
        Placed(file.path, f"{one.partition}/c{name}-{number:05d}.parquet", file.rows, file.bytes)
        for number, file in enumerate(staged)
    )
    removes = tuple(file.name for file in files)
    chain.finish(chain.add(EXCHANGE, adds=adds, removes=removes, removed_bytes=sum(one.files.values())))
    return adds


def rewriter(spark: SparkSession, lake: Lake, header: ArchiveHeader, compression: str) -> Rewrite:
    """Rewrites with Spark."""
    inside = {name: kind for name, kind in header.schema().items() if name not in ("topic", "day")}

    def rewrite(files: Sequence[LiveFile], folder: str, count: int) -> tuple[int, list[StagedFile]]:
        frame = read_files(spark, lake, files, header.schema())
        partition, rows = files[0].partition, _rows(spark, lake, files, header)
        frame = frame.select(*inside)
        frame = frame.coalesce(1) if count == 1 else frame.repartitionByRange(count, *ORDER)
        frame = frame.sortWithinPartitions(*ORDER)
        if not lake.in_tasks:
            made = write_by_spark(frame, lake, folder, compression)
            return rows, [replace(file, partition=partition) for file in made]
        write = WriteSorted(lake, folder, inside, compression)
        done = frame.mapInArrow(write, write.YIELDS).collect()
        return rows, [StagedFile(row.path, partition, row.rows, row.bytes) for row in done]

    return rewrite


def _rows(spark: SparkSession, lake: Lake, files: Sequence[LiveFile], header: ArchiveHeader) -> int:
    """How many rows the files have by their own account."""
    if not lake.in_tasks:
        return read_files(spark, lake, files, header.schema()).count()
    import pyarrow.parquet as pq

    def count(file: LiveFile) -> int:
        system, path = lake.table_file(file.path)
        return pq.read_metadata(path, filesystem=system).num_rows

    return sum(in_parallel(count, files))
