"""`twinlog pipeline archive` and `twinlog pipeline compact`: messages as Parquet, Delta or Iceberg tables."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline import archive_options as option
from twinlog.cli.pipeline.option_values import catalog_options, names, source_options
from twinlog.cli.pipeline.options import AsJson, SourceOption, SparkConf, SparkMaster
from twinlog.cli.pipeline.running import report_failures, spark_job
from twinlog.cli.shared.connecting import Access, with_access
from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.compaction_plan import CompactSummary
    from twinlog.spark.jobs.archive.job import ArchiveSummary


@with_access
def archive(
    access: Access,
    target: option.Target,
    name_server: option.NameServer = None,
    store: option.Store = None,
    topic: option.Topic = None,
    pattern: option.Pattern = None,
    format: option.Format = "parquet",
    every: option.Every = None,
    columns: option.Columns = None,
    rows: option.RowsPerBatch = None,
    size: option.BytesPerBatch = None,
    compression: option.Compression = "snappy",
    parse: option.Parse = None,
    parse_into: option.ParseInto = None,
    unparsed: option.Unparsed = None,
    catalog: option.Catalog = None,
    table: option.TableName = None,
    options: SourceOption = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Copy messages of brokers or stores into a table (Parquet, Delta or Iceberg), each message once.

    A run may be killed at any moment; the next one continues where it ended.
    """
    over = threading.Event()
    with report_failures():
        from twinlog.spark.jobs.archive import job as jobs

        job = jobs.ArchiveJob(
            target=target,
            name_server=name_server or (None if store else os.environ.get("NAMESRV_ADDR")),
            stores=tuple(store or ()),
            topics=names(topic),
            pattern=pattern,
            format=format,
            every=_interval(every),
            columns=names([columns] if columns else None),
            rows_max=rows,
            bytes_max=size,
            compression=compression,
            options=source_options(options, access),
            parse=parse,
            parse_into=parse_into,
            unparsed=unparsed,
            catalog=catalog_options(catalog),
            table=table,
        )
        jobs.check_before_start(job)
    with spark_job("archive", master, conf) as (spark, report):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        summary = jobs.archive(spark, job, report, is_over=over.is_set)
    _print_archived(summary, as_json)


def compact(
    target: option.Target,
    before: option.Before = None,
    size: option.FileMb = 256,
    topic: option.Topic = None,
    compression: option.Compression = "snappy",
    catalog: option.Catalog = None,
    table: option.TableName = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite the many small files of an archive's past days as few large ones.

    An archive run may continue meanwhile, and readers see either the old files or the new.
    """
    day = before or time.strftime("%Y-%m-%d", time.gmtime())
    try:
        time.strptime(day, "%Y-%m-%d")
    except ValueError:
        fail(f"--before {day!r} is not a day: write it as 2026-11-15")
    with report_failures():
        from twinlog.spark.jobs.archive import compact as jobs
        from twinlog.spark.jobs.archive.compaction_plan import CompactJob
        from twinlog.spark.jobs.archive.layout import existing_header

        job = CompactJob(
            target=target,
            before=day,
            file_bytes=size << 20,
            topics=names(topic),
            compression=compression,
            catalog=catalog_options(catalog),
            table=table,
        )
        if job.place.is_local:  # a lake needs a session to be opened
            existing_header(job.root)
    with spark_job("compact", master, conf) as (spark, report):
        summary = jobs.compact(spark, job, report)
    _print_compacted(summary, as_json)


def _interval(text: str | None) -> str | None:
    """10s, 1m, 1h in Spark's form."""
    if text is None:
        return None
    from twinlog.spark.errors import BadOption
    from twinlog.spark.option_values import OptionValues

    milliseconds = OptionValues({"every": text}, known=("every",)).duration_ms("every", 10_000)
    if not milliseconds:
        raise BadOption(f"--every {text!r} is not a time: write for example 10s")
    return f"{milliseconds} milliseconds"


def _print_archived(summary: ArchiveSummary, as_json: bool) -> None:
    if as_json:
        topics = {topic: asdict(totals) for topic, totals in sorted(summary.topics.items())}
        document = {"archive": summary.target, "format": summary.format, "batches": summary.batches}
        more = {"unparsed": summary.unparsed, "unparsed_archive": summary.unparsed_target}
        document |= more if summary.unparsed_target else {}
        document |= {"notes": summary.notes} if summary.notes else {}
        json.dump({**document, **asdict(summary.total), "topics": topics}, sys.stdout)
        print()
        return
    for note in summary.notes:
        print(note)
    if summary.unparsed:
        print(f"{summary.unparsed:,} messages do not parse: they are in {summary.unparsed_target}, with the reason")
    if not summary.topics:
        print(f"{summary.target}: {'no message parsed' if summary.unparsed else 'nothing new'}")
        return
    table = Table("topic", title=summary.target, title_justify="left")
    for name in ("messages", "files", "bytes"):
        table.add_column(name, justify="right")
    for topic, totals in sorted(summary.topics.items()):
        table.add_row(topic, f"{totals.rows:,}", f"{totals.files:,}", f"{totals.bytes:,}")
    total = summary.total
    table.add_section()
    table.add_row(f"{summary.batches} batches", f"{total.rows:,}", f"{total.files:,}", f"{total.bytes:,}")
    Console().print(table)


def _print_compacted(summary: CompactSummary, as_json: bool) -> None:
    if as_json:
        json.dump(asdict(summary), sys.stdout)
        print()
        return
    print(
        f"{summary.target}: {summary.partitions} partitions, {summary.files_before} files of "
        f"{summary.bytes_before:,} bytes became {summary.files_after} of {summary.bytes_after:,}"
    )
    for partition in summary.left:
        print(f"{partition} has new files and stays as it was: compact again later")
