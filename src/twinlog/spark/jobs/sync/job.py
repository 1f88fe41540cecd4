"""The query: a tick every ten seconds, in which Spark's tasks bring all replicas closer to their masters."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.spark.jobs.progress import ReportProgress, quiet
from twinlog.spark.jobs.sync.sync_metrics import serve_metrics
from twinlog.spark.jobs.sync.sync_plan import SyncJob, check_job
from twinlog.spark.jobs.sync.sync_run import SyncRun, SyncSummary
from twinlog.spark.jobs.sync.tables.history import only_writer
from twinlog.spark.jobs.sync.tables.lake_table import own_history
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.opening import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_SECONDS = 1


def sync(
    spark: SparkSession, job: SyncJob, report: ReportProgress = quiet, *, stop: threading.Event | None = None
) -> SyncSummary:
    """Synchronise until `stop` is set or the query is interrupted; with `job.once`, until all have caught up."""
    job = check_job(job)
    place, to = job.history_place, Path(job.to)
    with only_writer(*((to, place.local) if place.is_local else (to,))):
        history = None if place.is_local else open_lake(spark, place)
        if history is not None:
            own_history(history, to)
        return _sync(spark, job, history, report, stop)


def _sync(
    spark: SparkSession, job: SyncJob, history: Lake | None, report: ReportProgress, stop: threading.Event | None
) -> SyncSummary:
    run = SyncRun(job, job.cores or _cores(spark), report, history)
    with contextlib.ExitStack() as stack:
        if job.metrics_port is not None:
            stack.enter_context(serve_metrics(run.status_log, job.metrics_host, job.metrics_port))
        try:
            run.discover()
            summary = _run(spark, job, run, stop or threading.Event())
        except Exception as error:
            run.status_log.end(str(error))
            raise
    run.status_log.end()
    return summary


def _run(spark: SparkSession, job: SyncJob, run: SyncRun, stop: threading.Event) -> SyncSummary:
    if _is_connect(spark):
        run.run_without_query(spark, stop)
        return run.summary()
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = ticks.writeStream.queryName("twinlog-sync").foreachBatch(run.tick)
    writer = writer.option("checkpointLocation", str(job.checkpoint_path.absolute()))
    every = f"{job.every_ms} milliseconds"
    query = (writer.trigger(availableNow=True) if job.once else writer.trigger(processingTime=every)).start()
    try:
        while query.isActive and not stop.is_set():
            query.awaitTermination(_WAIT_SECONDS)
    except KeyboardInterrupt:
        stop.set()
    except Exception:
        if run.error is None:
            raise
    finally:
        run.finish()
        query.stop()
    if run.error is not None:
        raise run.error
    return run.summary()


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # a Connect session has no context
        return os.cpu_count() or 1
