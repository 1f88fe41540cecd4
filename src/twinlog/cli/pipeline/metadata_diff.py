"""`twinlog pipeline metadata-diff`: what differs between two brokers, two stores, or two moments.

Exit status 0: no difference. 1: differences, all of them listed. 2: an endpoint could not be read.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinlog.cli.pipeline.option_values import check_table, cluster_options, size_bytes
from twinlog.cli.pipeline.options import (
    AsJson,
    LocalBelow,
    SparkConf,
    SparkMaster,
)
from twinlog.cli.pipeline.running import errors, failures_exit_with, report_failures, spark_job, wants_spark
from twinlog.cli.shared.connecting import Access, with_access
from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from twinlog.spark.cluster_options import ClusterOptions
    from twinlog.spark.jobs.metadata_diff.job import DiffJob, DiffSummary

_NOT_COMPARABLE = 2


@with_access
def metadata_diff(
    access: Access,
    left: Annotated[str, typer.Argument(help="host:port, a store directory, or with --history a moment.")],
    right: Annotated[str, typer.Argument(help="The other one.")],
    history: Annotated[
        str | None, typer.Option("--history", metavar="DIR", help="The history that `pipeline sync` keeps.")
    ] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="The broker in the history.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="topics, groups, offsets or delayOffsets; may be repeated."),
    ] = None,
    versions: Annotated[bool, typer.Option("--versions", help="Compare data versions too.")] = False,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Write the rows as Parquet too.")] = None,
    local_below: LocalBelow = "64m",
    as_json: AsJson = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Show what differs between two brokers or two moments."""
    with failures_exit_with(_NOT_COMPARABLE):  # 1 would mean a difference
        check_table(to)
        if broker is not None and history is None:
            fail("--broker chooses from a history: give --history too")
        job = _plan(left, right, history, broker, kind, versions, cluster_options(None, access))
        if to is not None or (history is not None and not _is_short(history, local_below, master, conf)):
            summary = _compare(job, to, master, conf)
        else:
            summary = _compare_without_spark(job)
            if history is not None:
                errors.print("small: read here, without Spark (--local-below 0 starts Spark)")
    print_summary(summary, as_json=as_json)
    raise typer.Exit(summary.status)


def _plan(
    left: str,
    right: str,
    history: str | None,
    broker: str | None,
    kind: list[str] | None,
    versions: bool,
    options: ClusterOptions,
) -> DiffJob:
    with report_failures():
        from twinlog.replication.metadata.snapshots import KINDS
        from twinlog.spark.jobs.endpoint import parse_endpoint
        from twinlog.spark.jobs.metadata_diff.job import DiffJob, parse_moment
        from twinlog.spark.jobs.metadata_diff.snapshot import compared_kinds

        kinds = compared_kinds(kind or KINDS)
        if history is not None:
            endpoints = [parse_moment(text, history, broker) for text in (left, right)]
        else:
            endpoints = [parse_endpoint(text, options) for text in (left, right)]
        return DiffJob(left=endpoints[0], right=endpoints[1], kinds=kinds, versions=versions)


def _is_short(history: str, local_below: str, master: str | None, conf: list[str] | None) -> bool:
    limit = size_bytes(local_below, "--local-below")
    if not limit or wants_spark(master, conf):
        return False
    with report_failures():
        from twinlog.spark.jobs.metadata_diff.history_rows import history_bytes

        size = history_bytes(history)
    return size is not None and size <= limit


def _compare_without_spark(job: DiffJob) -> DiffSummary:
    """Two brokers or stores are read with one request each, a short history from its files."""
    with report_failures():
        from twinlog.spark.jobs.metadata_diff.job import metadata_diff

        return metadata_diff(None, job)


def _compare(job: DiffJob, to: str | None, master: str | None, conf: list[str] | None) -> DiffSummary:
    with spark_job("twinlog metadata diff", master, conf) as (spark, report):
        from twinlog.spark.jobs.metadata_diff.job import as_table, metadata_diff
        from twinlog.spark.lake.spark_tables import append_table

        summary = metadata_diff(spark, job, report)
        if to is not None:
            append_table(as_table(spark, summary).coalesce(1), to, "--to", f"diff-{uuid.uuid4().hex}")
    return summary


def print_summary(summary: DiffSummary, *, as_json: bool) -> None:
    if as_json:
        document = {"left": summary.left, "right": summary.right, "status": summary.status}
        print(json.dumps({**document, "rows": [dataclasses.asdict(row) for row in summary.rows]}, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if not summary.rows:
        console.print(f"{summary.left} and {summary.right} are equal", markup=False, soft_wrap=True)
        return
    table = Table()
    for name in ("kind", "key", "field", summary.left, summary.right):
        table.add_column(Text(name), overflow="fold")  # a value that is cut off cannot be compared
    for row in summary.rows:
        table.add_row(row.kind, *map(Text, (row.key, row.field, _shown(row.left), _shown(row.right))))
    console.print(table)
    console.print(f"{len(summary.rows)} difference{'s' if len(summary.rows) > 1 else ''}")


def _shown(value: str | None) -> str:
    return "-" if value is None else value
