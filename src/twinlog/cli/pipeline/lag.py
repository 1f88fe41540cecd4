"""`twinlog pipeline lag`: how far groups and replicas are behind, minute by minute."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline.option_values import check_table, cluster_options, seconds
from twinlog.cli.pipeline.options import (
    AsJson,
    NameServer,
    SparkConf,
    SparkMaster,
)
from twinlog.cli.pipeline.running import report_failures, spark_job
from twinlog.cli.shared.connecting import Access, with_access
from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from twinlog.spark.jobs.lag.job import LagSummary
    from twinlog.spark.jobs.lag.sample import LagRow


@with_access
def lag(
    access: Access,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The Parquet table of samples.")],
    name_servers: NameServer = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="A group, or a pattern with *; may be repeated.")
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Time between two samples.")] = "1m",
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long, for example 10m; default: until Ctrl-C.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One sample only.")] = False,
    copies: Annotated[
        str | None, typer.Option("--copies", metavar="DIR", help="Measure the copies of `pipeline sync --to DIR` too.")
    ] = None,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE.html", help="Draw the table into a file.")] = None,
    replot: Annotated[bool, typer.Option("--replot", help="Take no samples, only draw the table again.")] = False,
    as_json: AsJson = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Lag of groups and replicas per minute, as table and plot."""
    if once and for_ is not None:
        fail("--once and --for exclude each other: give one of them")
    if replot and plot is None:
        fail("--replot draws the table again: name the file with --plot lag.html")
    if not replot and not name_servers:
        fail("lag needs a name server: give --namesrvAddr host:port, or --replot to draw what is there")
    every_s = seconds(every, "--every")
    for_s = 0.0 if once else None if for_ is None else seconds(for_, "--for")
    options = cluster_options(name_servers, access)
    check_table(to)
    if copies is not None:
        with report_failures():
            from twinlog.spark.jobs.sync_status import status_of

            status_of(copies)
    if plot is not None:
        with report_failures():
            from twinlog.spark.jobs.lag.charts import check_plot

            check_plot(plot)
    with spark_job("twinlog lag", master, conf) as (spark, report):
        from twinlog.spark.jobs.lag.charts import write_plot
        from twinlog.spark.jobs.lag.job import LagJob
        from twinlog.spark.jobs.lag.job import lag as run

        summary, moments = None, None
        if not replot:
            job = LagJob(cluster=options, to=to, groups=tuple(group or ()), every_s=every_s, for_s=for_s, copies=copies)
            summary = run(spark, job, report)
        if plot is not None:
            is_bare = summary is not None and not summary.rows  # then there may be no table yet, which is not an error
            moments = write_plot(spark, to, plot, may_be_missing=is_bare)
    print_summary(summary, to, plot, moments, as_json=as_json)


def print_summary(summary: LagSummary | None, to: str, plot: str | None, moments: int | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, object] = {"table": to, "plot": plot, "plottedMoments": moments}
        if summary is not None:
            document |= {
                "samples": summary.samples,
                "rows": summary.rows,
                "errors": summary.errors,
                "missed": summary.missed,
                "latest": [_as_document(row) for row in summary.latest],
            }
        print(json.dumps(document, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if summary is not None:
        table = Table("", "broker", "topic", "messages", "bytes", "seconds")
        for row in summarised(summary.latest):
            table.add_row(*row)
        console.print(table)
        missed = f", {summary.missed} moments missed" if summary.missed else ""
        console.print(f"{summary.samples} samples, {summary.rows} rows in {to}, {summary.errors} errors{missed}")
        if not summary.rows:
            console.print("no group has committed an offset, and there is no replica to measure")
    if plot is not None:
        console.print(f"{moments} moments drawn in {plot}")


def summarised(rows: tuple[LagRow, ...]) -> list[tuple[str, ...]]:
    """One line for each group and topic of a broker, for each replica, and for each error; the worst first."""
    lines: dict[tuple[str, str, str], list[LagRow]] = {}
    for row in rows:
        if row.kind != "error":
            name = f"group {row.group}" if row.kind == "group" else f"replica {row.broker_id}"
            name = "copy" if row.kind == "copy" else name
            lines.setdefault((name, row.broker_name, row.topic or ""), []).append(row)
    found = []
    for (name, broker, topic), members in lines.items():
        messages = None if any(one.messages is None for one in members) else sum(one.messages or 0 for one in members)
        size = sum(one.bytes or 0 for one in members) if members[0].kind != "group" else None
        ages = [one.seconds for one in members if one.seconds is not None]
        found.append((messages or 0, size or 0, (name, broker, topic, messages, size, max(ages, default=None))))
    found.sort(key=lambda one: (-one[0], -one[1], one[2][:3]))
    texts = [
        tuple("?" if value is None else f"{value:,}" if not isinstance(value, str) else value for value in row)
        for _, _, row in found
    ]
    errors = [("error", row.broker_name, row.error or "", "", "", "") for row in rows if row.kind == "error"]
    return [*texts, *errors]


def _as_document(row: LagRow) -> dict[str, object]:
    import dataclasses

    return {name: value for name, value in dataclasses.asdict(row).items() if value is not None}
