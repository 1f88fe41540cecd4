"""Messages of brokers or stores as a Parquet or Delta table, each of them once, up to now or for as long as it runs.

    archive(spark, ArchiveJob(target="/data/archive", name_server="127.0.0.1:9876", topics=("Orders",)))
    read_archive(spark, "/data/archive").where("topic = 'Orders' and day = date'2026-11-15'")

One stream fills one archive, and its checkpoint lives inside. The tasks of a Parquet batch write files aside (see
archive_source), which enter the archive by one commit (see archive_layout): a run may be killed at any moment and
started again, and every reader of Parquet sees each message once. Delta has a log of its own for that.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption, SparkSourceError, nearest
from twinlog.spark.jobs.archive.delta import delta_added, delta_version
from twinlog.spark.jobs.archive.files import commit_batch, finish_last_batch, held
from twinlog.spark.jobs.archive.layout import (
    CHECKPOINT,
    FORMATS,
    PARTITION_COLUMNS,
    STAGING,
    ArchiveHeader,
    BadArchive,
    StagedFile,
    TopicTotals,
    check_fits,
    chosen,
    existing_header,
    load_commit,
    load_header,
    save_header,
)
from twinlog.spark.jobs.archive.source import ArchiveSource, ArchiveSpec
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.paths import local_path
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.positions import find_queues
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.schema import MESSAGE_COLUMNS, ddl
from twinlog.wire.sys_flag import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
_LOOK_SECONDS = 0.3
# Days are those of UTC, whatever the session's time zone is.
_DAY = "date_from_unix_date(cast(unix_millis(storeTimestamp) div 86400000 as int)) as day"
# A log also holds halves and rollbacks of transactions, which are in no queue.
IN_A_QUEUE = f"(sysFlag & {TRANSACTION_PREPARED}) = 0"
OWN_TOPICS = r"(?:TBW102|SCHEDULE_TOPIC_XXXX|BenchmarkTest|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|%.*|(?i:rmq_sys_).*)"


class ArchiveFailed(SparkSourceError):
    """A run that ended before its work was done; what it committed stays, and the next run goes on from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """What to archive, from where, and how; `name_server` or `stores`, one of them."""

    target: str | Path
    name_server: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # whole names; with neither this nor topics, all but the brokers' own
    stores: tuple[str, ...] = ()
    format: str = "parquet"
    every: str | None = None  # "10 seconds": run on; None: up to now
    columns: tuple[str, ...] = ()  # all when empty; those that name a message are always there
    compression: str = "snappy"
    rows_max: int | None = None  # per batch, from brokers
    bytes_max: str | None = None  # per batch, from stores
    options: Mapping[str, str] = field(default_factory=dict)  # more options of the source: credentials, readFrom, …

    @property
    def root(self) -> Path:
        return local_path(self.target, "archive")

    def header(self) -> ArchiveHeader:
        return ArchiveHeader(self.format, "brokers" if self.name_server else "stores", chosen(self.columns))

    def source_options(self) -> dict[str, str]:
        """The options of `format("rocketmq")` or `format("rocketmq_store")`."""
        if not self.name_server:
            limit = {"maxBytesPerTrigger": self.bytes_max} if self.bytes_max else {}
            topics = {"topic": ",".join(self.topics)} if self.topics else {}  # damage of others is no obstacle then
            return {"paths": json.dumps(list(self.stores)), **topics, **limit, **self.options}
        wanted = {"topic": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern or ".*"}
        limit = {"maxOffsetsPerTrigger": str(self.rows_max)} if self.rows_max else {}
        return {
            "nameServer": self.name_server,
            **wanted,
            "startingOffsets": "earliest",
            # Spark asks a Python source again where its first batch began.
            "initialOffsetsLocation": str(self.root / CHECKPOINT / "initial"),
            **limit,
            **self.options,
        }


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What one run added."""

    target: str
    format: str
    batches: int
    topics: Mapping[str, TopicTotals]

    @property
    def total(self) -> TopicTotals:
        return sum(self.topics.values(), TopicTotals())


def archive(
    spark: SparkSession, job: ArchiveJob, report: ReportProgress = quiet, *, is_over: Callable[[], bool] = lambda: False
) -> ArchiveSummary:
    """Add what is new to the archive. A run with `every` goes on until `is_over` says so."""
    root = job.root
    report(JobProgress("looking at the source"))
    look_first(job)
    _prepare(root, job)
    with held(root / "_run.lock", f"another run fills {root}: wait for its end, or archive to another directory"):
        finish_last_batch(root)
        run = uuid.uuid4().hex
        before = delta_version(root)
        writer = _writer(spark, job, root, run)
        query = writer.trigger(**({"processingTime": job.every} if job.every else {"availableNow": True})).start()
        try:
            batches = _follow(query, job, run, report, is_over)
        finally:
            if query.isActive:
                query.stop()
        if job.format == "delta":
            return ArchiveSummary(str(root), job.format, batches, delta_added(root, before))
        commit = load_commit(root)
        ours = commit.run == run
        return ArchiveSummary(str(root), job.format, commit.batches if ours else 0, commit.topics if ours else {})


def read_archive(spark: SparkSession, target: str | Path) -> DataFrame:
    """The archive as a table: the columns of messages in their order, and `day`."""
    root = local_path(target, "archive")
    header = existing_header(root)
    if header.format == "delta":
        frame = spark.read.format("delta").load(str(root))
    else:
        # The schema is given, or a topic called 2026 would come back as a number.
        frame = spark.read.schema(ddl(header.schema())).parquet(str(root))
    return frame.select(*header.schema())


def look_first(job: ArchiveJob) -> None:
    """Raise what would keep the job from starting; needs no Spark and writes nothing."""
    check_job(job)
    found = load_header(job.root)
    if found is not None:
        check_fits(job.root, found, job.header())
    _check_source(job)


def check_job(job: ArchiveJob) -> None:
    """BadOption for a description that makes no sense, before anything is started."""
    if bool(job.name_server) == bool(job.stores):
        raise BadOption("give a name server or store directories, and not both: one source fills an archive")
    if job.format not in FORMATS:
        raise BadOption(f"there is no format {job.format!r}: {nearest(job.format, FORMATS)}")
    if job.compression not in COMPRESSIONS:
        raise BadOption(f"there is no compression {job.compression!r}: {nearest(job.compression, COMPRESSIONS)}")
    if job.topics and job.pattern:
        raise BadOption("give topics or a pattern, not both")
    if job.rows_max is not None and not job.name_server:
        raise BadOption("rows per batch are counted for brokers only: limit the bytes per batch of stores")
    if job.bytes_max is not None and job.name_server:
        raise BadOption("bytes per batch are counted for stores only: limit the rows per batch of brokers")
    local_path(job.target, "archive")
    job.header()


def _check_source(job: ArchiveJob) -> None:
    """Fail at once for what a stream would only say after it has started."""
    if not job.name_server:
        store_options(job.source_options(), streaming=True)
        return
    options = read_options(job.source_options(), streaming=True)
    found = find_queues(options, Cluster(options.cluster, options.read_from))
    if not found and not job.every:
        raise BadOption(f"no topic matches {job.pattern or '.*'!r} at {job.name_server}: nothing to archive")


def _prepare(root: Path, job: ArchiveJob) -> None:
    try:
        if load_header(root) is None:
            root.mkdir(parents=True, exist_ok=True)
            save_header(root, job.header())
    except OSError as error:
        raise BadArchive(f"the archive {root} cannot be written ({error.strerror}): give another directory") from error


def _writer(spark: SparkSession, job: ArchiveJob, root: Path, run: str) -> Any:
    frame = messages(spark, job) if job.format == "delta" else _files(spark, job, root, run)
    writer = frame.writeStream.option("checkpointLocation", str(root / CHECKPOINT))
    if job.format == "delta":
        return writer.format("delta").partitionBy(*PARTITION_COLUMNS).option("path", str(root))
    return writer.foreachBatch(CommitBatch(str(root), run))


def _files(spark: SparkSession, job: ArchiveJob, root: Path, run: str) -> DataFrame:
    """The stream of files that tasks wrote."""
    spec = ArchiveSpec(
        source=job.header().source,
        options=job.source_options(),
        columns=job.header().columns,
        root=str(root),
        staging=f"{STAGING}/{run}",
        compression=job.compression,
        topics=job.topics,
        pattern=job.pattern,
        unwanted=None if (job.pattern or "").startswith("%") else OWN_TOPICS,
    )
    spark.dataSource.register(ArchiveSource)
    return spark.readStream.format(ArchiveSource.name()).option("spec", spec.encode()).load()


def messages(spark: SparkSession, job: ArchiveJob) -> DataFrame:
    """The stream of messages, for a sink of Spark's own."""
    names = job.header().columns
    source = "rocketmq" if job.name_server else "rocketmq_store"
    columns = {name: MESSAGE_COLUMNS[name] for name in dict.fromkeys((*names, "sysFlag"))}
    frame = spark.readStream.schema(ddl(columns)).format(source).options(**job.source_options()).load()
    if not job.name_server:
        frame = frame.where(f"{_topic_condition(job)} and {IN_A_QUEUE}")
    return frame.selectExpr(*names, _DAY)


def _topic_condition(job: ArchiveJob) -> str:
    if job.topics:
        return "topic in (" + ", ".join(_quoted(topic) for topic in job.topics) + ")"
    pattern = job.pattern or ".*"
    own = "true" if pattern.startswith("%") else f"not topic rlike {_quoted(f'^{OWN_TOPICS}$')}"
    return f"{own} and topic rlike {_quoted(f'^(?:{pattern})$')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """What happens to a batch; a value, since under Spark Connect it travels to the server."""

    root: str
    run: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        root = Path(self.root)
        query = json.loads((root / CHECKPOINT / "metadata").read_text())["id"]
        if load_commit(root).covers(number, query):  # the run before was killed between our commit and Spark's
            return
        staged = [StagedFile(row.path, row.partition, row.rows, row.bytes) for row in batch.collect()]
        commit_batch(root, number, query, self.run, staged)


def _follow(
    query: StreamingQuery, job: ArchiveJob, run: str, report: ReportProgress, is_over: Callable[[], bool]
) -> int:
    """Watch the query until it ends or is to end; the number of batches with rows."""
    rows: dict[int, int] = {}
    while True:
        try:
            ended = query.awaitTermination(_LOOK_SECONDS)  # pyright: ignore[reportArgumentType]
        except Exception as problem:
            raise ArchiveFailed(cause_of(problem)) from problem
        progress = query.lastProgress
        if progress:
            rows[progress["batchId"]] = progress.numInputRows  # the key is empty under Spark Connect
            done = sum(rows.values()) if job.format == "delta" else _run_total(job, run).rows
            left = rows_left(progress["sources"][0]) if job.name_server else None
            what = f"archiving to {job.root.name}"
            report(JobProgress(what, done, None if left is None else done + left, "messages"))
        if ended or is_over():
            return sum(1 for count in rows.values() if count)


def _run_total(job: ArchiveJob, run: str) -> TopicTotals:
    commit = load_commit(job.root)
    return sum(commit.topics.values(), TopicTotals()) if commit.run == run else TopicTotals()


def rows_left(source: Mapping[str, Any]) -> int | None:
    """How many messages the brokers had beyond this batch, as the query's progress tells."""
    try:
        end, latest = (_numbers(source[name]) for name in ("endOffset", "latestOffset"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return sum(max(at - end.get(queue, at), 0) for queue, at in latest.items())


def _numbers(offsets: Any) -> dict[str, int]:
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {str(queue): int(at) for queue, at in found.items()}


def cause_of(problem: Exception) -> str:
    """What an operator needs of Spark's long report: our own error if there is one, else the innermost cause."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("twinlog.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    causes = [line.rpartition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    told = causes[-1] if causes else (lines[0] if lines else type(problem).__name__)
    return f"{told}; what was committed before stays, the next run goes on from there"
