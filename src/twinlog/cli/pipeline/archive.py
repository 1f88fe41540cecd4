"""`twinlog pipeline archive` and `twinlog pipeline compact`."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline.running import AsJson, SparkConf, SparkMaster, report_failures, spark_job
from twinlog.cli.pipeline.source_options import Credential, SourceOption, parse_source_options, words
from twinlog.cli.running import fail

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.compact import CompactSummary
    from twinlog.spark.jobs.archive.job import ArchiveSummary

ArchivePath = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Directory that driver and workers see.")]
Compression = Annotated[str, typer.Option("--compression", help="snappy, zstd, lz4, gzip or none.")]


def archive(
    target: ArchivePath,
    name_server: Annotated[
        str | None, typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT;...", help="Archive topics of a cluster.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="DIR", help="Archive a store directory; may be given often.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("-t", "--topic", help="Topics, with commas or given often; all by default.")
    ] = None,
    pattern: Annotated[str | None, typer.Option("--pattern", help="A regular expression for whole names.")] = None,
    format: Annotated[str, typer.Option("--format", help="parquet or delta.")] = "parquet",
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Go on, with a batch every 10s, 1m, …; ^C ends it.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Columns to keep, with commas; those that name a message always.")
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows-per-batch", min=1, help="At most so many messages.")] = None,
    size: Annotated[
        str | None, typer.Option("--bytes-per-batch", metavar="SIZE", help="At most so much of a store's log: 512m.")
    ] = None,
    compression: Compression = "snappy",
    options: SourceOption = None,
    access_key: Credential = None,
    secret_key: Credential = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Copy messages of brokers or stores into a table of Parquet or Delta files, each message once.

    A run may be killed at any moment; the next one goes on where it was.
    """
    over = threading.Event()
    words_given = {
        "target": target,
        "name_server": name_server,
        "stores": tuple(store or ()),
        "topics": words(topic),
        "pattern": pattern,
        "format": format,
        "columns": words([columns] if columns else None),
        "rows_max": rows,
        "bytes_max": size,
        "compression": compression,
        "options": parse_source_options(options, access_key, secret_key),
    }
    with report_failures():
        from twinlog.spark.jobs.archive import job as jobs

        job = jobs.ArchiveJob(**words_given, every=_interval(every))
        jobs.look_first(job)
    with spark_job("archive", master, conf, archive_format=format) as (spark, report):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        summary = jobs.archive(spark, job, report, is_over=over.is_set)
    _print_archived(summary, as_json)


def compact(
    target: ArchivePath,
    before: Annotated[
        str | None, typer.Option("--before", metavar="DAY", help="Days before this one; today (UTC) by default.")
    ] = None,
    size: Annotated[int, typer.Option("--file-mb", min=1, help="How large files become.")] = 256,
    topic: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Topics; all by default.")] = None,
    compression: Compression = "snappy",
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite the many small files of an archive's days that are over as few large ones.

    An archive run may go on meanwhile, and readers see either the old files or the new.
    """
    day = before or time.strftime("%Y-%m-%d", time.gmtime())
    try:
        time.strptime(day, "%Y-%m-%d")
    except ValueError:
        fail(f"--before {day!r} is no day: write it as 2026-11-15")
    with report_failures():
        from twinlog.spark.jobs.archive import compact as jobs
        from twinlog.spark.jobs.archive.layout import existing_header

        job = jobs.CompactJob(
            target=target, before=day, file_bytes=size << 20, topics=words(topic), compression=compression
        )
        found = existing_header(job.root)
    with spark_job("compact", master, conf, archive_format=found.format) as (spark, report):
        summary = jobs.compact(spark, job, report)
    _print_compacted(summary, as_json)


def _interval(text: str | None) -> str | None:
    """Spark's words for 10s, 1m, 1h."""
    if text is None:
        return None
    from twinlog.spark.errors import BadOption
    from twinlog.spark.option_values import OptionValues

    milliseconds = OptionValues({"every": text}, known=("every",)).duration_ms("every", 10_000)
    if not milliseconds:
        raise BadOption(f"--every {text!r} is no time: write for example 10s")
    return f"{milliseconds} milliseconds"


def _print_archived(summary: ArchiveSummary, as_json: bool) -> None:
    if as_json:
        topics = {topic: asdict(totals) for topic, totals in sorted(summary.topics.items())}
        told = {"archive": summary.target, "format": summary.format, "batches": summary.batches}
        json.dump({**told, **asdict(summary.total), "topics": topics}, sys.stdout)
        print()
        return
    if not summary.topics:
        print(f"{summary.target}: nothing new")
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
        print(f"{partition} grew meanwhile and stays as it was: compact again later")
