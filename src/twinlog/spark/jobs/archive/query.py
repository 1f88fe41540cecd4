"""The streaming query of an archive: its source, what happens to each batch, and its progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.base.system_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
)
from twinlog.spark.errors import SparkSourceError, own_cause
from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.checkpoint import keep_offsets
from twinlog.spark.jobs.archive.files import commit_batch
from twinlog.spark.jobs.archive.layout import (
    CHECKPOINT,
    STAGING,
    StagedFile,
    TopicTotals,
    load_commit,
)
from twinlog.spark.jobs.archive.source import ArchiveSource, ArchiveSpec
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, described

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.3
# Days are those of UTC, whatever the session's time zone is.
DAY = "date_from_unix_date(cast(unix_millis(storeTimestamp) div 86400000 as int)) as day"
_NAMED = (AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC)
SYSTEM_TOPICS = rf"(?:{'|'.join(_NAMED)}|%.*|(?i:{SYSTEM_PREFIX}).*)"


class ArchiveFailed(SparkSourceError):
    """A run ended before its work was done; what it committed stays, and the next run continues from there."""


def stream_writer(spark: SparkSession, job: ArchiveJob, root: Path, run: str) -> Any:
    """The writer of the stream, before its trigger is set."""
    writer = _files(spark, job, root, run).writeStream.option("checkpointLocation", str(root / CHECKPOINT))
    writer = writer.queryName(f"archive {_label(job)} in {root}")  # names of running queries differ, and so do roots
    return writer.foreachBatch(CommitBatch(str(root), run, _label(job)))


def _label(job: ArchiveJob) -> str:
    return ",".join(job.topics) or job.pattern or "all topics"


def _files(spark: SparkSession, job: ArchiveJob, root: Path, run: str) -> DataFrame:
    """The stream of the files that tasks wrote."""
    spark.dataSource.register(ArchiveSource)
    spec = archive_spec(job, str(root), f"{STAGING}/{run}")
    return spark.readStream.format(ArchiveSource.name()).option("spec", spec.encode()).load()


def archive_spec(job: ArchiveJob, root: str, staging: str) -> ArchiveSpec:
    """What the tasks of a run need."""
    return ArchiveSpec(
        source=job.header().source,
        options=job.source_options(),
        columns=job.header().columns,
        root=root,
        staging=staging,
        compression=job.compression,
        topics=job.topics,
        pattern=job.pattern,
        unwanted=None if (job.pattern or "").startswith("%") else SYSTEM_TOPICS,
    )


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Adds a batch to the archive; a value, since under Spark Connect it travels to the server."""

    root: str
    run: str
    label: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        with described(batch.sparkSession, f"archive {self.label}, batch {number}"):
            self._commit(batch, number)

    def _commit(self, batch: DataFrame, number: int) -> None:
        root = Path(self.root)
        query = json.loads((root / CHECKPOINT / "metadata").read_text())["id"]
        if load_commit(root).covers(number, query):  # an earlier run was killed between our commit and Spark's
            return
        keep_offsets(root, number)
        staged = [StagedFile(row.path, row.partition, row.rows, row.bytes) for row in batch.collect()]
        commit_batch(root, number, query, self.run, staged)


def follow(
    query: StreamingQuery, job: ArchiveJob, run: str, report: ReportProgress, is_over: Callable[[], bool]
) -> None:
    """Report progress until the query ends or `is_over()`."""
    while True:
        try:
            ended = query.awaitTermination(_POLL_SECONDS)  # pyright: ignore[reportArgumentType]
        except Exception as problem:
            raise ArchiveFailed(cause_of(problem)) from problem
        progress = query.lastProgress
        if progress:
            done = _run_total(job, run).rows
            left = rows_left(progress["sources"][0]) if job.name_server else None
            what = f"archiving to {job.root.name}"
            report(JobProgress(what, done, None if left is None else done + left, "messages"))
        if ended or is_over():
            return


def _run_total(job: ArchiveJob, run: str) -> TopicTotals:
    commit = load_commit(job.root)
    return sum(commit.topics.values(), TopicTotals()) if commit.run == run else TopicTotals()


def rows_left(source: Mapping[str, Any]) -> int | None:
    """How many messages the brokers had after this batch, from the query's progress."""
    try:
        end, latest = (_numbers(source[name]) for name in ("endOffset", "latestOffset"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return sum(max(at - end.get(queue, at), 0) for queue, at in latest.items())


def _numbers(offsets: Any) -> dict[str, int]:
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {str(queue): int(at) for queue, at in found.items()}


def cause_of(problem: Exception) -> str:
    """The useful line of Spark's long report: our own error if there is one, else the innermost cause."""
    if (ours := own_cause(str(problem))) is not None:
        return ours
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    causes = [line.rpartition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    cause = causes[-1] if causes else (lines[0] if lines else type(problem).__name__)
    return f"{cause}; what was committed before stays, the next run continues from there"
