"""`twinlog pipeline sync`: keep replica directories equal to many masters."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from twinlog.cli.pipeline import sync_options as option
from twinlog.cli.pipeline.option_values import cluster_options
from twinlog.cli.pipeline.options import AsJson, SparkConf, SparkMaster
from twinlog.cli.pipeline.running import errors, report_failures, spark_job
from twinlog.cli.shared.connecting import Access, with_access

if TYPE_CHECKING:
    from twinlog.base.file_modes import Modes
    from twinlog.spark.jobs.sync.sync_plan import SyncJob
    from twinlog.spark.jobs.sync.sync_run import SyncSummary


@with_access
def sync(
    access: Access,
    to: option.To,
    name_server: option.NameServer = None,
    cluster: option.Cluster = None,
    broker: option.Broker = None,
    address: option.Address = None,
    store: option.Store = None,
    every: option.Every = "10s",
    once: option.Once = False,
    history: option.History = None,
    history_kinds: option.HistoryKinds = None,
    history_keep: option.HistoryKeep = None,
    offsets_every: option.OffsetsEvery = "10m",
    status_keep: option.StatusKeep = "7d",
    keep: option.Keep = None,
    metrics_port: option.MetricsPort = None,
    metrics_host: option.MetricsHost = "127.0.0.1",
    checkpoint: option.Checkpoint = None,
    directory_mode: option.DirectoryMode = "0700",
    file_mode: option.FileMode = "0600",
    ha_secret_file: option.HaSecretFile = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Keep replica directories equal to many masters.

    Each replica is a real store, on which a Twinlog or Java broker can start, as slave or master. Changes in the
    masters' metadata are kept in a table of changes. The exit status is 1 if a broker failed in its last tick.
    """
    with report_failures():
        from twinlog.spark.jobs.sync.replicas.metadata_changes import KINDS
        from twinlog.spark.jobs.sync.sync_plan import (
            SyncJob,
            check_job,
            parse_duration_ms,
            parse_keep,
            parse_kinds,
            parse_stores,
        )

        job = check_job(
            SyncJob(
                to=to,
                cluster=cluster_options(None if address else name_server, access),
                brokers=tuple(broker or ()),
                addresses=tuple(address or ()),
                cluster_name=cluster,
                stores=parse_stores(store or ()),
                every_ms=parse_duration_ms(every),
                once=once,
                history=history,
                checkpoint=checkpoint,
                modes=_modes(file_mode, directory_mode),
                keep=None if keep is None else parse_keep(keep),
                history_kinds=() if history_kinds is None else parse_kinds(history_kinds, KINDS),
                history_keep_ms=None if history_keep is None else parse_duration_ms(history_keep),
                offsets_every_ms=parse_duration_ms(offsets_every),
                status_keep_ms=parse_duration_ms(status_keep),
                ha_secret=None if ha_secret_file is None else _secret(ha_secret_file),
                metrics_port=metrics_port,
                metrics_host=metrics_host,
            )
        )
    _run(job, master, conf, as_json)


def _run(job: SyncJob, master: str | None, conf: list[str] | None, as_json: bool) -> None:
    with spark_job("twinlog sync", master, conf) as (spark, report):
        from twinlog.spark.jobs.sync.job import sync

        summary = sync(spark, job, report, stop=_stop_on_signal())
    if as_json:
        print(json.dumps(_document(summary)))
    else:
        _print_summary(summary, job)
    if summary.failed:
        raise typer.Exit(1)


def _secret(path: str) -> str:
    """The secret in a file, without the end of its line."""
    from pathlib import Path

    from twinlog.settings.replication import secret_problem
    from twinlog.spark.errors import BadOption

    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--ha-secret-file {path!r} cannot be read: {error}") from error
    if problem := secret_problem(text):
        raise BadOption(f"--ha-secret-file: the secret in {path!r} {problem}")
    return text


def _modes(file: str, directory: str) -> Modes:
    from twinlog.base.file_modes import check_directory_mode, check_file_mode, parse_modes
    from twinlog.spark.errors import BadOption

    for name, text, check in (
        ("--file-mode", file, check_file_mode),
        ("--directory-mode", directory, check_directory_mode),
    ):
        if problem := check(text):
            raise BadOption(f"{name} {text} {problem}")
    return parse_modes(file, directory)


def _stop_on_signal() -> threading.Event:
    """Set by the first SIGINT or SIGTERM. The running tick is abandoned; the next run repeats it."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _print_summary(summary: SyncSummary, job: SyncJob) -> None:
    table = Table(title=f"{summary.ticks} ticks in {summary.seconds:.1f} s, history in {job.history_place}")
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
