"""Progress of a job: jobs report it, their caller shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.3
_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """`done` of `total` units; an unknown total is None; `text` names the current step."""

    text: str
    done: int = 0
    total: int | None = None
    unit: str = "tasks"


ReportProgress = Callable[[JobProgress], None]


def quiet(progress: JobProgress) -> None:
    """For callers that show no progress."""


@contextmanager
def task_progress(spark: SparkSession, text: str, report: ReportProgress) -> Iterator[None]:
    """Report the finished tasks of what Spark runs in this block.

    A Connect session does not report tasks, so only the start is reported there.
    """
    report(JobProgress(text))
    tracker = _tracker(spark)
    if tracker is None:
        yield
        return
    with described(spark, f"{spark.sparkContext.appName}: {text}"):
        yield from _watched(tracker, text, report)


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """What Spark's pages and logs call the jobs that this block starts; a Connect session cannot say it."""
    if _tracker(spark) is None:
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def _watched(tracker: StatusTracker, text: str, report: ReportProgress) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        done_before = 0
        while not over.wait(_POLL_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            if total and done != done_before:
                report(JobProgress(text, done, total))
                done_before = done

    watcher = threading.Thread(target=watch, daemon=True, name="task-progress")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _tracker(spark: SparkSession) -> StatusTracker | None:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # a Connect session has no context; its error is not a Python class of Spark
        return None
