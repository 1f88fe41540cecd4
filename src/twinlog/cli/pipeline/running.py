"""What the pipeline commands share: the Spark session they run on, the progress they show, and how they fail."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TextIO

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

    from twinlog.spark.jobs.progress import Progress, Report

SparkMaster = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*] by default, spark://host:7077, yarn, ..."),
]
SparkConf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be given often.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")]
errors = Console(stderr=True, highlight=False)


@contextlib.contextmanager
def spark_job(
    name: str, master: str | None, conf: list[str] | None, *, archive_format: str = "parquet"
) -> Iterator[tuple[SparkSession, Report]]:
    """A Spark session and a progress bar for one job; what the job raises on its own account ends the command."""
    settings = _settings(conf, archive_format)
    with open(os.dup(2), "w") as terminal, _bar(terminal) as bar, failures_told():
        from twinlog.spark.session import start
        from twinlog.spark.start_noise import without_start_noise

        task = bar.add_task("starting Spark", total=None)

        def report(progress: Progress) -> None:
            bar.update(task, description=progress.text, completed=progress.done, total=progress.total)

        with without_start_noise():
            spark = start(name, master=master, conf={"spark.log.level": "ERROR", **settings})
        try:
            yield spark, report
        finally:
            bar.update(task, visible=False)
            spark.stop()


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """End the command with one line for what a job raises on its own account, or when Spark is not there."""
    try:
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
    except PySparkException as problem:
        fail(_cause(problem))


def _bar(terminal: TextIO) -> Bar:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(file=terminal), transient=True)


def _settings(conf: list[str] | None, archive_format: str) -> dict[str, str]:
    """The session's settings as given, and what the archive's format needs besides."""
    given = dict(_setting(text) for text in conf or ())
    if archive_format != "delta":
        return given
    with failures_told():
        import pyspark

        from twinlog.spark.jobs.delta import delta_conf

        return delta_conf(pyspark.__version__, given)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        fail(f"--conf {text!r} is not KEY=VALUE, for example spark.executor.memory=2g")
    return key.strip(), value.strip()


def _cause(problem: Exception) -> str:
    """The line of a Python error inside Spark's report of it; the whole first paragraph when there is none."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("twinlog.")]
    if ours:
        return ours[-1].partition(": ")[2] or ours[-1]
    return lines[0] if lines else type(problem).__name__
