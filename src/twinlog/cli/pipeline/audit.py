"""`twinlog pipeline audit`: whether replicas equal their masters.

Exit status 0: all equal. 1: differences, all of them listed. 2: something could not be compared.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline.option_values import check_table, cluster_options, seconds, size_bytes
from twinlog.cli.pipeline.options import (
    AsJson,
    LocalBelow,
    NameServer,
    SparkConf,
    SparkMaster,
)
from twinlog.cli.pipeline.running import errors, failures_exit_with, local_job, report_failures, spark_job, wants_spark
from twinlog.cli.shared.connecting import Access, with_access

if TYPE_CHECKING:
    from twinlog.spark.cluster_options import ClusterOptions
    from twinlog.spark.jobs.audit.findings import Finding
    from twinlog.spark.jobs.audit.job import AuditJob, AuditSummary
    from twinlog.spark.jobs.audit.pairs import Pairs

_NOT_COMPARABLE = 2
_SHOWN_MAX = 50


@with_access
def audit(
    access: Access,
    endpoints: Annotated[
        list[str] | None,
        typer.Argument(metavar="MASTER REPLICA ...", help="Pairs: store directories, or host:port of live brokers."),
    ] = None,
    name_servers: NameServer = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Append the result to this Parquet table.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A replica that is behind is a difference too.")] = False,
    metadata: Annotated[bool, typer.Option(help="Compare topics, groups, offsets and versions too.")] = True,
    queues: Annotated[bool, typer.Option("--queues", help="Compare consume queues too (store directories).")] = False,
    check_crc: Annotated[
        bool, typer.Option("--check-crc", help="Check the bodies of equal records too (store directories); slower.")
    ] = False,
    settle: Annotated[
        str, typer.Option("--settle", metavar="TIME", help="How long a live replica's metadata may take to follow.")
    ] = "30s",
    local_below: LocalBelow = "1g",
    as_json: AsJson = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Check that replicas equal their masters, and list what differs.

    Without arguments every replica of the name server is compared with its master.
    """
    with failures_exit_with(_NOT_COMPARABLE):  # 1 would mean a difference
        settle_s = seconds(settle, "--settle")
        check_table(to)
        pairs = _pairs(endpoints, cluster_options(name_servers, access))
        from twinlog.spark.jobs.audit.job import AuditJob

        job = AuditJob(
            pairs=pairs,
            to=to,
            strict=strict,
            metadata=metadata,
            queues=queues,
            check_crc=check_crc,
            settle_s=settle_s,
        )
        summary = _run(job, size_bytes(local_below, "--local-below"), master, conf)
    print_summary(summary, as_json=as_json)
    raise typer.Exit(summary.status)


def _run(job: AuditJob, local_bytes_max: int, master: str | None, conf: list[str] | None) -> AuditSummary:
    from twinlog.spark.jobs.audit.in_process import audit_in_process, fits_in_process
    from twinlog.spark.jobs.audit.job import audit

    if not wants_spark(master, conf) and local_bytes_max and fits_in_process(job, local_bytes_max):
        with local_job() as report:
            summary = audit_in_process(job, report)
        errors.print("small: compared here, without Spark (--local-below 0 starts Spark)")
        return summary
    with spark_job("twinlog audit", master, conf) as (spark, report):
        return audit(spark, job, report)


def _pairs(endpoints: list[str] | None, options: ClusterOptions) -> Pairs:
    """The pairs to compare; a wrong one ends the command before Spark starts."""
    with report_failures():
        from twinlog.spark.jobs.audit.pairs import pairs_of, registered_pairs

        return pairs_of(endpoints, options) if endpoints else registered_pairs(options)


def print_summary(summary: AuditSummary, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_document(summary), ensure_ascii=False))
        return
    console = Console(highlight=False)
    table = Table("result", "compared", "behind", "findings", "master | replica")
    table.columns[-1].overflow = "fold"
    for one in summary.pairs:
        counts = ", ".join(f"{count} {kind}" for kind, count in one.counts.items() if kind not in ("lag", "note"))
        table.add_row(one.result, _size(one.compared_bytes), _size(one.lag_bytes), counts or "none", one.pair)
    console.print(table)
    pair = next(iter(summary.pairs)).pair if len(summary.pairs) == 1 else None
    for finding in sorted(summary.findings[:_SHOWN_MAX], key=lambda one: one.pair):
        if finding.pair != pair:
            pair = finding.pair
            console.print(pair, markup=False, soft_wrap=True)
        console.print(line_of(finding), markup=False, soft_wrap=True)
    more = sum(sum(one.counts.values()) for one in summary.pairs) - len(summary.findings[:_SHOWN_MAX])
    if more > 0:
        console.print(f"... and {more} more; --to keeps all of them in a table")
    rate = summary.compared_bytes / max(summary.seconds, 0.001)
    console.print(
        f"audit {summary.audit_id}: {_size(summary.compared_bytes)} in {summary.seconds:.1f} s ({_size(rate)}/s)"
    )


def line_of(finding: Finding) -> str:
    """One finding as a line: what it is, where, and what differs."""
    place = []
    if finding.item is not None:
        place.append(f"{'' if finding.queue_offset is None else 'topic '}{finding.item}")
    if finding.queue_id is not None:
        place.append(f"queue {finding.queue_id} offset {finding.queue_offset}")
    if finding.physical_offset is not None:
        place.append(f"physical offset {finding.physical_offset}")
    if finding.size is not None:
        place.append(f"{finding.size} bytes")
    if finding.key is not None:
        place.append(finding.key if finding.queue_offset is None else f"message {finding.key}")
    if finding.field is not None:
        place.append(f"{finding.field}")
    values = ""
    if finding.master_value is not None or finding.replica_value is not None:
        values = f" (master: {finding.master_value}, replica: {finding.replica_value})"
    side = f" on the {finding.side}" if finding.kind == "corrupt" and finding.side in ("master", "replica") else ""
    return f"{finding.kind}{side}: {', '.join(place)}{': ' if place and finding.what else ''}{finding.what}{values}"


def as_document(summary: AuditSummary) -> dict[str, object]:
    return {
        "auditId": summary.audit_id,
        "auditedAt": summary.audited_at.isoformat(),
        "status": summary.status,
        "seconds": round(summary.seconds, 3),
        "pairs": [
            {
                "master": one.master,
                "replica": one.replica,
                "result": one.result,
                "comparedBytes": one.compared_bytes,
                "lagBytes": one.lag_bytes,
                "counts": one.counts,
            }
            for one in summary.pairs
        ],
        "findings": [
            {_camel(name): value for name, value in dataclasses.asdict(one).items() if value not in (None, "")}
            for one in summary.findings
        ],
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")
