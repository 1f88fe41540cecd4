"""The audit as a job: inspect all pairs, compare all their ranges as tasks, then write the result as a table."""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from twinlog.spark.jobs.audit.metadata import compare_metadata, metadata_reader
from twinlog.spark.jobs.audit.pair_plan import AuditedLog, PairPlan, inspect_log, plan_pair
from twinlog.spark.jobs.audit.queues import compare_queues
from twinlog.spark.jobs.endpoint import Endpoint, error_text
from twinlog.spark.jobs.metadata_diff.snapshot import is_java
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet, task_progress
from twinlog.spark.lake.spark_tables import append_table
from twinlog.spark.paths import table_location
from twinlog.store.errors import StoreError
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EQUAL, DIFFERENT, NOT_COMPARABLE = 0, 1, 2
_RESULTS = {EQUAL: "equal", DIFFERENT: "different", NOT_COMPARABLE: "not comparable"}
EXPECTED = (
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
ROWS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditJob:
    """Which pairs to compare, how, and where the result goes."""

    pairs: tuple[tuple[Endpoint, Endpoint], ...]  # (master, replica)
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


def audit(spark: SparkSession, job: AuditJob, report: ReportProgress = quiet) -> AuditSummary:
    """Compare every pair; differences are findings, not errors."""
    if not job.pairs:
        raise BadOption("there is nothing to audit: give a master and its replica")
    if job.to is not None:
        table_location(job.to, "--to")
    began, (audit_id, now) = time.monotonic(), new_audit()
    report(JobProgress("reading where both logs end"))
    plans = _inspect_all(spark, job)
    tasks = [task for number, plan in enumerate(plans) for task in plan_tasks(plan, number, job)]
    found = _on_workers(spark, partial(_run_ranges, tuple(plans), tuple(tasks), job), len(tasks), SCHEMA)
    # A record over two ranges is found twice. One partition, as findings are few: all that follows needs no shuffle.
    found = found.repartition(1).distinct().persist()
    try:
        with task_progress(spark, "comparing", report):
            counted = found.groupBy("pair", "kind").agg({"kind": "count", "bytes": "sum"}).collect()
        from pyspark.sql import functions as F

        reported = found.filter(F.col("kind") != "compared")
        shown = reported.orderBy("pair", "commitLogOffset", "item", "kind").limit(job.shown_max).collect()
        findings = [finding for plan in plans for finding in plan.findings] + [_finding(row) for row in shown]
        results = tuple(_result(plan, job, counted) for plan in plans)
        if job.to is not None:
            report(JobProgress(f"writing {job.to}"))
            _write(spark, job.to, reported, plans, results, audit_id, now)
    finally:
        found.unpersist()
    return AuditSummary(audit_id, now, results, tuple(findings[: job.shown_max]), time.monotonic() - began)


def new_audit() -> tuple[str, datetime]:
    """The id and the time of an audit that begins now."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", now


def plan_tasks(plan: PairPlan, number: int, job: AuditJob) -> list[RangeTask]:
    """The ranges of a pair, cut at the master's segments; whole segments where records are asked for one by one."""
    size = max(job.range_bytes, -(-(plan.end - plan.begin) // _TASKS_MAX))
    segment = plan.master.segment_bytes
    one_by_one = plan.master.listed is plan.replica.listed is None and not (
        plan.master.gives_digests and plan.replica.gives_digests
    )
    size = segment if one_by_one else min(size, segment)
    tasks, at = [], plan.begin
    while at < plan.end:
        end = min(at + size, at - at % segment + segment, plan.end)
        tasks.append(RangeTask(number, at, end))
        at = end
    for only, part in (("extra", plan.extra), ("missing", plan.missing)):
        if part is not None:
            tasks.append(RangeTask(number, *part, only))
    return tasks


# -- on the workers ------------------------------------------------------------------------------------


def inspect_pair(pair: str, master: Endpoint, replica: Endpoint, job: AuditJob) -> PairPlan:
    """What to compare of the log, and the comparison of everything else; problems become findings."""
    try:
        theirs = inspect_log(replica)
        ours = inspect_log(master)
        plan = plan_pair(pair, ours, theirs, strict=job.strict)
    except EXPECTED as error:
        nothing = empty_plan(pair, master, replica)
        return replace(nothing, findings=(Finding(pair, "error", error_text(error)),))
    if any(one.kind == "error" for one in plan.findings):
        return plan
    more: list[Finding] = []
    live = ours.is_live or theirs.is_live
    try:
        if job.metadata:
            read_pair = metadata_reader(master, replica)
            settle_s = job.settle_s if live else 0.0
            more += compare_metadata(
                pair,
                read_pair,
                settle_s=settle_s,
                replica_is_java=is_java(replica),
                replica_is_live=replica.store is None,
            )
        if job.queues:
            if master.store is None or replica.store is None:
                more.append(Finding(pair, "error", "consume queues are compared between store directories only"))
            else:
                log = (plan.begin, plan.end)
                more += compare_queues(pair, master, replica, log, unfinished=live)
    except EXPECTED as error:
        more.append(Finding(pair, "error", error_text(error)))
    return replace(plan, findings=(*plan.findings, *more))


def empty_plan(pair: str, master: Endpoint, replica: Endpoint) -> PairPlan:
    """The plan of a pair that could not be read."""
    return PairPlan(pair, AuditedLog(master, 0, 0, 1, False), AuditedLog(replica, 0, 0, 1, False), 0, 0, None, None, ())


def _inspect_all(spark: SparkSession, job: AuditJob) -> list[PairPlan]:
    rows = _on_workers(spark, partial(_run_inspections, job), len(job.pairs), "plan binary").collect()
    plans = {one.pair: one for one in (pickle.loads(row["plan"]) for row in rows)}
    return [plans[name] for name in pair_names(job.pairs)]


def pair_names(pairs: Sequence[tuple[Endpoint, Endpoint]]) -> list[str]:
    """A name for each pair, unique within the audit."""
    names = [f"{master} | {replica}" for master, replica in pairs]
    seen = Counter(names)
    return [f"{number + 1}: {name}" if seen[name] > 1 else name for number, name in enumerate(names)]


def _run_inspections(job: AuditJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = pair_names(job.pairs)
    for number in _numbers(batches):
        plan = inspect_pair(names[number], *job.pairs[number], job)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(plan)], pa.binary())], names=["plan"])


def range_findings(plan: PairPlan, task: RangeTask, job: AuditJob) -> Iterator[Finding]:
    """All findings of a range; a range that cannot be read is a finding too."""
    try:
        yield from run_task(plan, task, check_crc=job.check_crc)
    except EXPECTED as error:
        place = f"{task.begin} to {task.end}"
        yield Finding(plan.pair, "error", f"{place}: {error_text(error)}", physical_offset=task.begin)


def _run_ranges(
    plans: Sequence[PairPlan], tasks: Sequence[RangeTask], job: AuditJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        findings: list[Finding] = []
        for one in range_findings(plans[tasks[number].pair_number], tasks[number], job):
            findings.append(one)
            if len(findings) >= ROWS_PER_BATCH:
                yield as_batch(findings)
                findings = []
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


def _result(plan: PairPlan, job: AuditJob, counted: Iterable[Any]) -> PairResult:
    rows = {row["kind"]: row for row in counted if row["pair"] == plan.pair}
    compared = rows.pop("compared", {"sum(bytes)": 0})["sum(bytes)"] or 0
    return pair_result(plan, job, {kind: row["count(kind)"] for kind, row in rows.items()}, compared)


def pair_result(plan: PairPlan, job: AuditJob, found: Mapping[str, int], compared_bytes: int) -> PairResult:
    """The result of a pair: the findings of its plan, and how many of each kind were found in its ranges."""
    counts = Counter(one.kind for one in plan.findings)
    counts.update(found)
    status = EQUAL
    if any(counts[kind] for kind in DIFFERENCES) or (job.strict and counts["lag"]):
        status = DIFFERENT
    if counts["error"]:
        status = NOT_COMPARABLE
    lag = sum(one.size or 0 for one in plan.findings if one.kind == "lag")
    master, replica = str(plan.master.endpoint), str(plan.replica.endpoint)
    return PairResult(plan.pair, master, replica, status, compared_bytes, lag, dict(sorted(counts.items())))


def _write(
    spark: SparkSession,
    to: str,
    reported: DataFrame,
    plans: Sequence[PairPlan],
    results: Sequence[PairResult],
    audit_id: str,
    now: datetime,
) -> None:
    """Append this audit to the table, in one commit."""
    from pyspark.sql import functions as F

    rows = [finding for plan in plans for finding in plan.findings]
    rows += [Finding(one.pair, "result", one.result, size=one.compared_bytes) for one in results]
    more = spark.createDataFrame([tuple(as_batch([one]).to_pylist()[0].values()) for one in rows], SCHEMA)
    sides = spark.createDataFrame(
        [(one.pair, one.master, one.replica) for one in results], "pair string, master string, replica string"
    )
    table = reported.unionByName(more).join(F.broadcast(sides), "pair")
    stamped = table.select(
        F.lit(audit_id).alias("auditId"),
        F.lit(now).alias("auditedAt"),
        "pair",
        "master",
        "replica",
        *[name for name in COLUMNS if name != "pair"],
    )
    append_table(stamped.coalesce(1), to, "--to", f"audit-{audit_id}")


def _finding(row: Any) -> Finding:
    return Finding(*(row[name] for name in COLUMNS))
