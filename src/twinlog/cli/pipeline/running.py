"""What the pipeline commands share: the Spark session, the progress bar, and how they fail."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from twinlog.cli.running import fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinlog.spark.jobs.progress import JobProgress, ReportProgress

errors = Console(stderr=True, highlight=False)
_TASK_FAILED = re.compile(r"most recent failure: .*?\(TID \d+\) \(.*?\): (.+)")


@contextlib.contextmanager
def spark_job(
    name: str, master: str | None, conf: list[str] | None, *, archive_format: str = "parquet"
) -> Iterator[tuple[SparkSession, ReportProgress]]:
    """A Spark session and a progress bar for one job; an error of the job ends the command with one line."""
    settings = _settings(conf, archive_format)
    with open(os.dup(2), "w") as terminal, _bar(terminal) as bar, report_failures():
        from twinlog.spark.session import start
        from twinlog.spark.start_noise import without_start_noise

        task = bar.add_task("starting Spark", total=None)

        def report(progress: JobProgress) -> None:
            bar.update(task, description=progress.text, completed=progress.done, total=progress.total)

        with without_start_noise():
            # An error is one line of ours; `--conf spark.log.level=WARN` brings Spark's own log back.
            spark = start(name, master=master, conf={"spark.log.level": "FATAL", **settings})
        try:
            yield spark, report
        finally:
            bar.update(task, visible=False)
            spark.stop()


@contextlib.contextmanager
def report_failures() -> Iterator[None]:
    """End the command with one line for an error of a job, or when Spark is not installed."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from twinlog.spark.errors import SparkSourceError
    except ImportError as problem:
        fail(f"Spark is not installed ({problem}): pip install 'twinlog[spark]'")
    from twinlog.client.errors import ClientError
    from twinlog.net.errors import NetError
    from twinlog.store.errors import StoreError

    try:
        yield
    except (SparkSourceError, StoreError, ClientError, NetError, OSError) as problem:
        fail(problem)
    except (PySparkException, Py4JError) as problem:
        fail(cause_of(problem))


@contextlib.contextmanager
def failures_exit_with(status: int) -> Iterator[None]:
    """Let a failure end the command with this exit status instead of 1."""
    try:
        yield
    except typer.Exit as problem:
        raise typer.Exit(status) from problem


def _bar(terminal: TextIO) -> Bar:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(file=terminal), transient=True)


def _settings(conf: list[str] | None, archive_format: str) -> dict[str, str]:
    """The session's settings as given, and those that the archive's format needs."""
    given = dict(_setting(text) for text in conf or ())
    if archive_format != "delta":
        return given
    with report_failures():
        import pyspark

        from twinlog.spark.jobs.archive.delta import delta_conf

        return delta_conf(pyspark.__version__, given)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        fail(f"--conf {text!r} is not KEY=VALUE, for example spark.executor.memory=2g")
    return key.strip(), value.strip()


def cause_of(problem: Exception) -> str:
    """The line of our own error inside Spark's report; else the reason of the last failed task, or the first line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("twinlog.")]
    if ours:
        return ours[-1].partition(": ")[2] or ours[-1]
    reason = next((found[1] for line in lines if (found := _TASK_FAILED.search(line))), None)
    if reason is None:
        others = [line.lstrip(": ") for line in lines if not line.startswith("An error occurred while calling")]
        reason = others[0] if others else type(problem).__name__
    return f"{reason}; `--conf spark.log.level=WARN` shows Spark's own log"
