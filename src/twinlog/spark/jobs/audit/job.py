"""The audit as a job: a look at every pair, then all ranges of all pairs as tasks, then the result as a table."""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twinlog.client.errors import ClientError
from twinlog.net.errors import NetError
from twinlog.replication.errors import ReplicationError
from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.spark.jobs.audit.compare import RangeTask, run_task
from twinlog.spark.jobs.audit.findings import COLUMNS, DIFFERENCES, SCHEMA, Finding, as_batch
from twinlog.spark.jobs.audit.pair_plan import PairLook, compare_metadata, look_at_log, look_at_metadata, plan_pair
from twinlog.spark.jobs.audit.queues import compare_queues
from twinlog.spark.jobs.endpoint import Side
from twinlog.spark.jobs.metadata_diff.snapshot import is_java
from twinlog.spark.jobs.progress import Progress, Report, quiet, task_progress
from twinlog.spark.paths import table_location
from twinlog.store.errors import StoreError
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EQUAL, DIFFERENT, NOT_COMPARABLE = 0, 1, 2
_RESULTS = {EQUAL: "equal", DIFFERENT: "different", NOT_COMPARABLE: "not comparable"}
_EXPECTED = (
    SparkSourceError,
    StoreError,
    ReplicationError,
    NetError,
    ClientError,
    WireError,
    OSError,
    KeyError,
    ValueError,
)
_TASKS_MAX = 4096
_ROWS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditJob:
    """Which pairs to compare, how, and where the result goes."""

    pairs: tuple[tuple[Side, Side], ...]  # (master, replica)
    to: str | None = None
    strict: bool = False
    metadata: bool = True
    queues: bool = False
    check_crc: bool = False
    settle_s: float = 30.0  # how long the metadata of a live replica may take to follow
    range_bytes: int = 256 << 20
    shown_max: int = 1000  # findings in the summary; the table has all


@dataclass(frozen=True, slots=True)
class PairResult:
    pair: str
    master: str
    replica: str
    status: int
    compared_bytes: int
    lag_bytes: int
    counts: dict[str, int]

    @property
    def result(self) -> str:
        return _RESULTS[self.status]


@dataclass(frozen=True, slots=True)
class AuditSummary:
    audit_id: str
    audited_at: datetime
    pairs: tuple[PairResult, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def status(self) -> int:
        """0: all equal; 1: differences; 2: something could not be compared, whatever else was found."""
        return max((one.status for one in self.pairs), default=EQUAL)

    @property
    def compared_bytes(self) -> int:
        return sum(one.compared_bytes for one in self.pairs)


def audit(spark: SparkSession, job: AuditJob, report: Report = quiet) -> AuditSummary:
    """Compare every pair; differences are findings, not errors."""
    if not job.pairs:
        raise BadOption("there is nothing to audit: give a master and its replica")
    if job.to is not None:
        table_location(job.to, "--to")
    began, now = time.monotonic(), datetime.now(UTC)
    audit_id = f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    report(Progress("looking at both sides"))
    looks = _look_at_all(spark, job)
    tasks = [task for number, look in enumerate(looks) for task in plan_tasks(look, number, job)]
    found = _on_workers(spark, partial(_run_ranges, tuple(looks), tuple(tasks), job), len(tasks), SCHEMA)
    # A record over two ranges is found twice. One partition, as findings are few: all that follows needs no shuffle.
    found = found.repartition(1).distinct().persist()
    try:
        with task_progress(spark, "comparing", report):
            counted = found.groupBy("pair", "kind").agg({"kind": "count", "bytes": "sum"}).collect()
        from pyspark.sql import functions as F

        told = found.filter(F.col("kind") != "compared")
        shown = told.orderBy("pair", "commitLogOffset", "item", "kind").limit(job.shown_max).collect()
        findings = [finding for look in looks for finding in look.findings] + [_finding(row) for row in shown]
        results = tuple(
            _result(look, job, [row.asDict() for row in counted if row["pair"] == look.pair]) for look in looks
        )
        if job.to is not None:
            report(Progress(f"writing {job.to}"))
            _write(spark, job.to, told, looks, results, audit_id, now)
    finally:
        found.unpersist()
    return AuditSummary(audit_id, now, results, tuple(findings[: job.shown_max]), time.monotonic() - began)


def plan_tasks(look: PairLook, number: int, job: AuditJob) -> list[RangeTask]:
    """The ranges of a pair, cut at the master's segments; whole segments where records must be asked for in turn."""
    size = max(job.range_bytes, -(-(look.end - look.begin) // _TASKS_MAX))
    segment = look.master.segment_bytes
    in_turn = look.master.listed is look.replica.listed is None and not (
        look.master.gives_digests and look.replica.gives_digests
    )
    size = segment if in_turn else min(size, segment)
    tasks, at = [], look.begin
    while at < look.end:
        end = min(at + size, at - at % segment + segment, look.end)
        tasks.append(RangeTask(number, at, end))
        at = end
    for only, part in (("extra", look.extra), ("missing", look.missing)):
        if part is not None:
            tasks.append(RangeTask(number, *part, only))
    return tasks


# -- on the workers ------------------------------------------------------------------------------------


def look_at_pair(pair: str, master: Side, replica: Side, job: AuditJob) -> PairLook:
    """What is to be compared, and everything that is not the log itself; problems become findings."""
    try:
        theirs = look_at_log(replica)
        ours = look_at_log(master)
        look = plan_pair(pair, ours, theirs, strict=job.strict)
    except _EXPECTED as error:
        nothing = look_of_nothing(pair, master, replica)
        return replace(nothing, findings=(Finding(pair, "error", _says(error)),))
    if any(one.kind == "error" for one in look.findings):
        return look
    more: list[Finding] = []
    live = ours.is_live or theirs.is_live
    try:
        if job.metadata:
            snapshots = look_at_metadata(master, replica)
            settle_s = job.settle_s if live else 0.0
            more += compare_metadata(
                pair,
                snapshots,
                settle_s=settle_s,
                replica_is_java=is_java(replica),
                replica_is_live=replica.store is None,
            )
        if job.queues:
            if master.store is None or replica.store is None:
                more.append(Finding(pair, "error", "consume queues are compared between store directories only"))
            else:
                log = (look.begin, look.end)
                more += compare_queues(pair, master, replica, log, unfinished=live)
    except _EXPECTED as error:
        more.append(Finding(pair, "error", _says(error)))
    return replace(look, findings=(*look.findings, *more))


def look_of_nothing(pair: str, master: Side, replica: Side) -> PairLook:
    from twinlog.spark.jobs.audit.pair_plan import LogView

    return PairLook(pair, LogView(master, 0, 0, 1, False), LogView(replica, 0, 0, 1, False), 0, 0, None, None, ())


def _look_at_all(spark: SparkSession, job: AuditJob) -> list[PairLook]:
    rows = _on_workers(spark, partial(_run_looks, job), len(job.pairs), "look binary").collect()
    looks = {one.pair: one for one in (pickle.loads(row["look"]) for row in rows)}
    return [looks[name] for name in pair_names(job.pairs)]


def pair_names(pairs: Sequence[tuple[Side, Side]]) -> list[str]:
    """A name for each pair, unique within the audit."""
    names = [f"{master} | {replica}" for master, replica in pairs]
    seen = Counter(names)
    return [f"{number + 1}: {name}" if seen[name] > 1 else name for number, name in enumerate(names)]


def _run_looks(job: AuditJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = pair_names(job.pairs)
    for number in _numbers(batches):
        look = look_at_pair(names[number], *job.pairs[number], job)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(look)], pa.binary())], names=["look"])


def _run_ranges(
    looks: Sequence[PairLook], tasks: Sequence[RangeTask], job: AuditJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        task = tasks[number]
        look = looks[task.pair_number]
        findings: list[Finding] = []
        try:
            for one in run_task(look, task, check_crc=job.check_crc):
                findings.append(one)
                if len(findings) >= _ROWS_PER_BATCH:
                    yield as_batch(findings)
                    findings = []
        except _EXPECTED as error:
            place = f"{task.begin} to {task.end}"
            findings.append(Finding(look.pair, "error", f"{place}: {_says(error)}", physical_offset=task.begin))
        yield as_batch(findings)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _on_workers(
    spark: SparkSession, run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], count: int, schema: str
) -> DataFrame:
    """`run` over the numbers below `count`, each in a task of its own."""
    return spark.range(0, count, 1, max(1, count)).mapInArrow(run, schema)


# -- in the driver -------------------------------------------------------------------------------------


def _result(look: PairLook, job: AuditJob, counted: list[dict[str, Any]]) -> PairResult:
    counts = Counter(one.kind for one in look.findings)
    compared = 0
    for row in counted:
        if row["kind"] == "compared":
            compared = row["sum(bytes)"] or 0
        else:
            counts[row["kind"]] += row["count(kind)"]
    status = EQUAL
    if any(counts[kind] for kind in DIFFERENCES) or (job.strict and counts["lag"]):
        status = DIFFERENT
    if counts["error"]:
        status = NOT_COMPARABLE
    lag = sum(one.size or 0 for one in look.findings if one.kind == "lag")
    master, replica = str(look.master.side), str(look.replica.side)
    return PairResult(look.pair, master, replica, status, compared, lag, dict(sorted(counts.items())))


def _write(
    spark: SparkSession,
    to: str,
    told: DataFrame,
    looks: Sequence[PairLook],
    results: Sequence[PairResult],
    audit_id: str,
    now: datetime,
) -> None:
    """Append this audit to the table, in one commit."""
    from pyspark.sql import functions as F

    rows = [finding for look in looks for finding in look.findings]
    rows += [Finding(one.pair, "result", one.result, size=one.compared_bytes) for one in results]
    more = spark.createDataFrame([tuple(as_batch([one]).to_pylist()[0].values()) for one in rows], SCHEMA)
    sides = spark.createDataFrame(
        [(one.pair, one.master, one.replica) for one in results], "pair string, master string, replica string"
    )
    table = told.unionByName(more).join(F.broadcast(sides), "pair")
    stamped = table.select(
        F.lit(audit_id).alias("auditId"),
        F.lit(now).alias("auditedAt"),
        "pair",
        "master",
        "replica",
        *[name for name in COLUMNS if name != "pair"],
    )
    stamped.coalesce(1).write.mode("append").parquet(to)


def _finding(row: Any) -> Finding:
    return Finding(*(row[name] for name in COLUMNS))


def _says(error: Exception) -> str:
    text = str(error) if not isinstance(error, KeyError) else f"an answer lacks {error}"
    return text or type(error).__name__
