"""What the pipeline commands share: the Spark session, the progress bar, and how they fail."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NoReturn

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

from twinlog.cli.pipeline.session_options import session_choices
from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinlog.spark.jobs.progress import JobProgress, ReportProgress

errors = Console(stderr=True, highlight=False)
_TASK_FAILED = re.compile(r"most recent failure: .*?\(TID \d+\) \(.*?\): (.+)")


@contextlib.contextmanager
def spark_job(name: str, master: str | None, conf: list[str] | None) -> Iterator[tuple[SparkSession, ReportProgress]]:
    """A Spark session and a progress bar for one job; an error of the job ends the command with one line."""
    chosen = session_choices()
    given = dict(setting(text) for text in conf or ())
    # An error is one line of ours; Spark's own log comes with --verbose, or with this setting given.
    settings = {"spark.log.level": "WARN" if chosen.verbose else "FATAL", **given}
    if chosen.ui:
        settings = {"spark.ui.enabled": "true", **settings}
    with open(os.dup(2), "w") as terminal, _bar(terminal) as bar, report_failures():
        from twinlog.spark.session import start
        from twinlog.spark.start_noise import without_start_noise

        task = bar.add_task("starting Spark", total=None)

        def report(progress: JobProgress) -> None:
            bar.update(task, description=progress.text, completed=progress.done, total=progress.total)

        with without_start_noise():
            spark = start(name, master=master, conf=settings)
        if chosen.ui:
            bar.console.print(f"Spark's pages: {spark.sparkContext.uiWebUrl}", markup=False)
        try:
            yield spark, report
        finally:
            bar.update(task, visible=False)
            spark.stop()


@contextlib.contextmanager
def local_job() -> Iterator[ReportProgress]:
    """A progress bar for a job in this process; an error of the job ends the command with one line."""
    with _bar(errors.file, disable=not errors.is_terminal) as bar, report_failures():
        task = bar.add_task("", total=None)

        def report(progress: JobProgress) -> None:
            bar.update(task, description=progress.text, completed=progress.done, total=progress.total)

        try:
            yield report
        finally:
            bar.update(task, visible=False)


def wants_spark(master: str | None, conf: list[str] | None) -> bool:
    """Whether the command line is about a Spark session: then a small job does not run without one."""
    return bool(master or conf or session_choices().ui or "PYSPARK_GATEWAY_PORT" in os.environ)


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
        _fail_with(problem, problem)
    except (PySparkException, Py4JError) as problem:
        _fail_with(cause_of(problem), problem)


def _fail_with(cause: object, problem: Exception) -> NoReturn:
    if session_choices().verbose:
        traceback.print_exception(problem)
    fail(cause)


@contextlib.contextmanager
def failures_exit_with(status: int) -> Iterator[None]:
    """Let a failure end the command with this exit status instead of 1."""
    try:
        yield
    except typer.Exit as problem:
        raise typer.Exit(status) from problem


def _bar(terminal: IO[str], *, disable: bool = False) -> Bar:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    columns = (*columns, TimeElapsedColumn(), TimeRemainingColumn())
    return Bar(*columns, console=Console(file=terminal), transient=True, disable=disable)


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark's, from the command line."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        fail(f"--conf {text!r} is not KEY=VALUE, for example spark.executor.memory=2g")
    return key.strip(), value.strip()


def cause_of(problem: Exception) -> str:
    """The line of our own error inside Spark's report; else the reason of the last failed task, or the first line."""
    from twinlog.spark.errors import own_cause

    if (ours := own_cause(str(problem))) is not None:
        return ours
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    reason = next((found[1] for line in lines if (found := _TASK_FAILED.search(line))), None)
    if reason is None:
        others = [line.lstrip(": ") for line in lines if not line.startswith("An error occurred while calling")]
        reason = others[0] if others else type(problem).__name__
    return reason if session_choices().verbose else f"{reason}; --verbose shows Spark's own log"
