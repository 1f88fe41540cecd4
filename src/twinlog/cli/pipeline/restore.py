"""`twinlog pipeline restore`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from twinlog.cli.pipeline.running import AsJson, SparkConf, SparkMaster, report_failures, spark_job
from twinlog.cli.pipeline.source_options import Credential, parse_source_options, words
from twinlog.cli.running import fail
from twinlog.wire.bodies import MessageQueue

if TYPE_CHECKING:
    from twinlog.spark.jobs.restore.job import RestoreSummary


def restore(
    name_server: Annotated[
        str, typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="The target.")
    ],
    topic: Annotated[list[str], typer.Option("-t", "--topic", help="Topics, with commas or given often.")],
    archive: Annotated[str | None, typer.Option("--archive", metavar="DIR", help="Restore from an archive.")] = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="DIR", help="Restore from a store; may be given often.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Restore a topic under another name.")
    ] = None,
    from_time: Annotated[
        str | None, typer.Option("--from-time", metavar="TIME", help="Stored at or after: 2026-11-15T10:00, or ms.")
    ] = None,
    to_time: Annotated[str | None, typer.Option("--to-time", metavar="TIME", help="Stored before.")] = None,
    from_offset: Annotated[int | None, typer.Option("--from-offset", min=0, help="Of every queue.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="Of every queue, excluded.")] = None,
    broker: Annotated[list[str] | None, typer.Option("--broker", help="Only what these brokers held.")] = None,
    queue: Annotated[list[int] | None, typer.Option("--queue", help="Only these queues.")] = None,
    name: Annotated[
        str, typer.Option("--name", help="Restores of different origins to one topic need different names.")
    ] = "restore",
    map_path: Annotated[
        str, typer.Option("--map", metavar="DIR", help="Where the table of old and new offsets goes.")
    ] = "restore-map",
    groups: Annotated[str | None, typer.Option("--groups", help="Groups to place, with commas.")] = None,
    group_offsets: Annotated[
        str | None,
        typer.Option("--group-offsets", metavar="FROM", help="Where they stood: a store, NAME=STORE, or HOST:PORT."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Messages per request, at most.")] = 500,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help='An option of the target cluster, or with --store of format("rocketmq_store"); may be given often.',
        ),
    ] = None,
    access_key: Credential = None,
    secret_key: Credential = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Send what an archive or a store holds to a broker, in the order of its queues.

    It may be killed and run again: what is there already is not sent twice.
    """
    limits = (_time_ms("--from-time", from_time), _time_ms("--to-time", to_time))
    renames = dict(_renamed(text) for text in rename or ())
    with report_failures():
        from twinlog.spark.jobs.archive.layout import existing_header
        from twinlog.spark.jobs.restore import job as jobs
        from twinlog.spark.jobs.restore.plan import check_restore

        job = jobs.RestoreJob(
            name_server=name_server,
            topics=words(topic),
            archive=archive,
            stores=tuple(store or ()),
            renames=renames,
            from_ms=limits[0],
            to_ms=limits[1],
            from_offset=from_offset,
            to_offset=to_offset,
            brokers=words(broker),
            queues=tuple(queue or ()),
            name=name,
            map_path=map_path,
            groups=words([groups] if groups else None),
            group_offsets=group_offsets,
            batch=batch,
            options=parse_source_options(options, access_key, secret_key),
        )
        check_restore(job)
        format = existing_header(job.archive_root).format if job.archive_root else "parquet"
    with spark_job("restore", master, conf, archive_format=format) as (spark, report):
        summary = jobs.restore(spark, job, report)
    _print_summary(summary, as_json)


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        fail(f"--rename {text!r} is not OLD=NEW, for example Orders=OrdersRestored")
    return old, new


def _time_ms(option: str, text: str | None) -> int | None:
    """Milliseconds; a time without a zone is one of UTC."""
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{option} {text!r} is no time: write 2026-11-15T10:00:00+00:00, or milliseconds since 1970")
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _queue_words(queue: MessageQueue) -> dict[str, str | int]:
    return {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}


def _print_summary(summary: RestoreSummary, as_json: bool) -> None:
    if as_json:
        told = {
            "sent": summary.sent,
            "present": summary.present,
            "empty": summary.empty,
            "gaps": summary.gaps,
            **asdict(summary),
        }
        json.dump(told, sys.stdout, default=_queue_words)
        print()
        return
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
        console.print(f"group {place.group}: {where} goes on at {place.new_offset} (was {place.old_offset})")
    if summary.gaps:
        console.print(f"{summary.gaps} messages between the others are not in the source: damaged, or never archived")
    copies = f"; {summary.copies} messages are there more than once" if summary.copies else ""
    if summary.empty:
        console.print(f"{summary.empty} messages have no body, and no broker takes such: they are left out")
    console.print(f"{summary.sent:,} messages sent; {summary.map_rows:,} offsets in {summary.map_path}{copies}")
