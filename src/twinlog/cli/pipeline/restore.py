"""`twinlog pipeline restore`: send the messages of an archive or a store to a broker."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline import restore_options as option
from twinlog.cli.pipeline.option_values import moment_ms, names, source_options
from twinlog.cli.pipeline.options import AsJson, SparkConf, SparkMaster
from twinlog.cli.pipeline.running import report_failures, spark_job
from twinlog.cli.shared.connecting import Access, with_access
from twinlog.cli.shared.running import fail
from twinlog.wire.bodies import MessageQueue

if TYPE_CHECKING:
    from twinlog.spark.jobs.restore.job import RestoreJob, RestoreSummary


@with_access
def restore(
    access: Access,
    name_server: option.NameServer,
    topic: option.Topic,
    archive: option.Archive = None,
    store: option.Store = None,
    rename: option.Rename = None,
    from_time: option.FromTime = None,
    to_time: option.ToTime = None,
    from_offset: option.FromOffset = None,
    to_offset: option.ToOffset = None,
    broker: option.Broker = None,
    queue: option.Queue = None,
    name: option.Name = "restore",
    map_path: option.MapPath = None,
    groups: option.Groups = None,
    group_offsets: option.GroupOffsets = None,
    batch: option.Batch = 500,
    options: option.TargetOption = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Send the messages of an archive or a store to a broker, in the order of their queues.

    It may be killed and run again: messages that are there already are not sent twice.
    """
    with report_failures():
        from twinlog.spark.jobs.restore.job import RestoreJob

        job = RestoreJob(
            name_server=name_server,
            topics=names(topic),
            archive=archive,
            stores=tuple(store or ()),
            renames=dict(_renamed(text) for text in rename or ()),
            from_ms=moment_ms(from_time, "--from-time"),
            to_ms=moment_ms(to_time, "--to-time"),
            from_offset=from_offset,
            to_offset=to_offset,
            brokers=names(broker),
            queues=tuple(queue or ()),
            name=name,
            map_path=map_path,
            groups=names([groups] if groups else None),
            group_offsets=group_offsets,
            batch=batch,
            options=source_options(options, access),
        )
    _run(job, master, conf, as_json)


def _run(job: RestoreJob, master: str | None, conf: list[str] | None, as_json: bool) -> None:
    with report_failures():
        from twinlog.spark.jobs.archive.layout import existing_header
        from twinlog.spark.jobs.restore.job import restore
        from twinlog.spark.jobs.restore.restore_plan import check_restore

        check_restore(job)
        place = job.archive_place
        if place is not None and place.is_local:
            existing_header(place.local)
    with spark_job("restore", master, conf) as (spark, report):
        summary = restore(spark, job, report)
    if as_json:
        json.dump(_document(summary), sys.stdout, default=_queue_document)
        print()
    else:
        _print_summary(summary)


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        fail(f"--rename {text!r} is not OLD=NEW, for example Orders=OrdersRestored")
    return old, new


def _document(summary: RestoreSummary) -> dict[str, Any]:
    totals = {"sent": summary.sent, "present": summary.present, "empty": summary.empty, "gaps": summary.gaps}
    return {**totals, **asdict(summary)}


def _queue_document(queue: MessageQueue) -> dict[str, str | int]:
    return {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}


def _print_summary(summary: RestoreSummary) -> None:
    table = Table("from", "to")
    for name in ("wanted", "sent", "present"):
        table.add_column(name, justify="right")
    for one in summary.queues:
        old, new = (f"{q.topic} {q.broker_name} {q.queue_id}" for q in (one.source, one.target))
        table.add_row(old, new, f"{one.wanted:,}", f"{one.sent:,}", f"{one.present:,}")
    console = Console()
    console.print(table)
    for place in summary.groups:
        where = f"{place.target.topic} {place.target.broker_name} {place.target.queue_id}"
        console.print(f"group {place.group}: {where} continues at {place.new_offset} (was {place.old_offset})")
    if summary.gaps:
        console.print(
            f"{summary.gaps} messages between the others are missing in the source: damaged, or never archived"
        )
    copies = f"; {summary.copies} messages are there more than once" if summary.copies else ""
    if summary.empty:
        console.print(f"{summary.empty} messages have no body and are left out, since no broker takes them")
    kept = f"kept in {summary.map_path}" if summary.map_path else "read back"
    console.print(f"{summary.sent:,} messages sent; {summary.map_rows:,} offsets {kept}{copies}")
