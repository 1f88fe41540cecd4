"""`twinlog pipeline sync`: keep replica directories equal to many masters."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from twinlog.cli.pipeline.running import AsJson, SparkConf, SparkMaster, errors, spark_job
from twinlog.cli.running import fail

if TYPE_CHECKING:
    from twinlog.base.file_modes import Modes
    from twinlog.spark.jobs.sync.job import SyncSummary
    from twinlog.spark.jobs.sync.plan import SyncJob


def sync(
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="One replica directory for each broker goes here.")],
    name_server: Annotated[
        str | None,
        typer.Option(
            "-n", "--namesrvAddr", envvar="NAMESRV_ADDR", metavar="HOST:PORT;...", help="Name servers of the masters."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Only the masters of this cluster.")
    ] = None,
    broker: Annotated[
        list[str] | None, typer.Option("--broker", metavar="NAME", help="Only this broker; may be given often.")
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="HOST:PORT", help="A master by its address, without name server; often."),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="BROKER=DIR", help="Read this broker's log from its store directory; often."),
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often masters are asked.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="End as soon as all replicas are where their masters were.")] = (
        False
    ),
    history: Annotated[
        str | None, typer.Option("--history", metavar="DIR", help="The tables of changes; default: TO/_history.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="Spark's own notes; default: TO/_checkpoint.")
    ] = None,
    directory_mode: Annotated[
        str, typer.Option("--directory-mode", metavar="MODE", help="Of new replica directories; 0750 lets a group in.")
    ] = "0700",
    file_mode: Annotated[
        str, typer.Option("--file-mode", metavar="MODE", help="Of new files in them; 0640 lets a group read.")
    ] = "0600",
    access_key: Annotated[str | None, typer.Option("--access-key", envvar="ROCKETMQ_ACCESS_KEY")] = None,
    secret_key: Annotated[str | None, typer.Option("--secret-key", envvar="ROCKETMQ_SECRET_KEY")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS; certificates are checked.")] = False,
    tls_insecure: Annotated[bool, typer.Option("--tls-insecure", help="Connect with TLS to anybody.")] = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Keep replica directories equal to many masters.

    Each replica is a real store, on which a Twinlog or Java broker can start, as slave or master. What changes in the
    masters' metadata is kept in a table of changes. Ends with status 1 if a broker failed in its last tick.
    """
    from twinlog.client.errors import ClientError
    from twinlog.spark.errors import SparkSourceError
    from twinlog.spark.jobs.sync.plan import SyncJob, check_job, parse_duration_ms, parse_stores

    try:  # before Spark takes its time to start
        job = check_job(
            SyncJob(
                to=to,
                cluster=_cluster(name_server if not address else None, access_key, secret_key, tls, tls_insecure),
                brokers=tuple(broker or ()),
                addresses=tuple(address or ()),
                cluster_name=cluster,
                stores=parse_stores(store or ()),
                every_ms=parse_duration_ms(every),
                once=once,
                history=history,
                checkpoint=checkpoint,
                modes=_modes(file_mode, directory_mode),
            )
        )
    except (SparkSourceError, ClientError) as problem:
        fail(problem)
    with spark_job("twinlog sync", master, conf) as (spark, report):
        from twinlog.spark.jobs.sync.job import sync as run

        try:
            summary = run(spark, job, report, stop=_stop_on_signal())
        except ClientError as problem:
            fail(problem)
    if as_json:
        print(json.dumps(_document(summary)))
    else:
        _show(summary, job)
    if summary.failed:
        raise typer.Exit(1)


def _cluster(name_server: str | None, access_key: str | None, secret_key: str | None, tls: bool, tls_insecure: bool):
    """The options of a connection, read as those of a data source are."""
    from twinlog.client.routing.name_servers import parse_name_servers
    from twinlog.client.signing import Credentials
    from twinlog.spark.errors import BadOption
    from twinlog.spark.options import ClusterOptions

    if bool(access_key) != bool(secret_key):
        raise BadOption("an access key and a secret key go together; give both or none")
    return ClusterOptions(
        name_servers=tuple(parse_name_servers(name_server)) if name_server else (),
        credentials=Credentials(access_key, secret_key) if access_key and secret_key else None,
        tls=tls or tls_insecure,
        tls_verify=not tls_insecure,
    )


def _modes(file: str, directory: str) -> Modes:
    from twinlog.base.file_modes import check_directory_mode, check_file_mode, parse_modes
    from twinlog.spark.errors import BadOption

    for option, text, check in (
        ("--file-mode", file, check_file_mode),
        ("--directory-mode", directory, check_directory_mode),
    ):
        if problem := check(text):
            raise BadOption(f"{option} {text} {problem}")
    return parse_modes(file, directory)


def _stop_on_signal() -> threading.Event:
    """Set by the first SIGINT or SIGTERM: the tick under way is given up, which replicas do not mind."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _show(summary: SyncSummary, job: SyncJob) -> None:
    table = Table(title=f"{summary.ticks} ticks in {summary.seconds:.1f} s, history in {job.history_path}")
    for column in ("broker", "master", "log end", "lag", "copied", "changes", "failed ticks"):
        is_text = column in ("broker", "master")
        table.add_column(column, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for one in summary.brokers:
        numbers = (one.log_end, one.lag_bytes, one.bytes_copied, one.changes, one.failures)
        table.add_row(one.broker, one.address, *(f"{number:,}" for number in numbers))
    errors.print(table)
    for one in summary.failed:
        errors.print(f"{one.broker} at {one.address}: {one.error}", style="red", soft_wrap=True, markup=False)


def _document(summary: SyncSummary) -> dict:
    return {
        "ticks": summary.ticks,
        "seconds": summary.seconds,
        "bytesCopied": summary.bytes_copied,
        "failed": [one.broker for one in summary.failed],
        "brokers": [asdict(one) for one in summary.brokers],
    }
