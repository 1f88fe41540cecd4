"""An audit in this process, without Spark: for logs that are compared sooner than a JVM starts.

The same plans and the same comparisons as `job` runs as tasks, one after the other; a test holds both results equal.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.base.atomic_file import replacing
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.audit.findings import Finding, as_batch
from twinlog.spark.jobs.audit.job import (
    EXPECTED,
    ROWS_PER_BATCH,
    AuditJob,
    AuditSummary,
    PairResult,
    inspect_pair,
    new_audit,
    pair_names,
    pair_result,
    plan_tasks,
    range_findings,
)
from twinlog.spark.jobs.audit.pair_plan import AuditedLog, PairPlan, inspect_log
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.paths import is_local, local_path

PAIRS_MAX = 16  # pairs are compared one after the other, and each may wait for a replica that follows
_RECORD_COST = 16  # a record that is asked for by its offset takes longer than one that is compared as bytes


def fits_in_process(job: AuditJob, bytes_max: int) -> bool:
    """Whether what is read of the logs has at most `bytes_max` bytes; True also if they cannot be read."""
    if len(job.pairs) > PAIRS_MAX or (job.to is not None and not is_local(job.to)):
        return False
    total = 0
    for pair in job.pairs:
        try:
            master, replica = map(inspect_log, pair)
        except EXPECTED:
            continue  # the audit reports it
        # What only the replica has is listed, and with `strict` what only the master has.
        size = max(0, max(replica.end, master.end if job.strict else 0) - max(master.start, replica.start))
        total += size * (1 if _as_bytes(master) and _as_bytes(replica) else _RECORD_COST)
    return total <= bytes_max


def audit_in_process(job: AuditJob, report: ReportProgress = quiet) -> AuditSummary:
    """Compare every pair; differences are findings, not errors."""
    if not job.pairs:
        raise BadOption("there is nothing to audit: give a master and its replica")
    began, (audit_id, now) = time.monotonic(), new_audit()
    with ExitStack() as stack:
        table = None if job.to is None else stack.enter_context(_ResultFile(local_path(job.to, "--to"), audit_id, now))
        report(JobProgress("reading where both logs end"))
        plans = [inspect_pair(name, *pair, job) for name, pair in zip(pair_names(job.pairs), job.pairs, strict=True)]
        shown, results = _Shown(job.shown_max), []
        for number, plan in enumerate(plans):
            counts, compared = _compare(plan, number, job, shown, table, report)
            results.append(pair_result(plan, job, counts, compared))
        if table is not None:
            table.add(results, [finding for plan in plans for finding in plan.findings])
            table.add(results, [Finding(one.pair, "result", one.result, size=one.compared_bytes) for one in results])
    findings = [*(finding for plan in plans for finding in plan.findings), *shown.first()]
    return AuditSummary(audit_id, now, tuple(results), tuple(findings[: job.shown_max]), time.monotonic() - began)


def _as_bytes(log: AuditedLog) -> bool:
    return log.listed is not None or log.gives_digests


def _compare(
    plan: PairPlan, number: int, job: AuditJob, shown: _Shown, table: _ResultFile | None, report: ReportProgress
) -> tuple[Counter[str], int]:
    """How many findings of each kind the ranges of a pair have, and how many bytes were compared."""
    tasks = plan_tasks(plan, number, job)
    counts, compared, seen = Counter[str](), 0, set[int]()
    for done, task in enumerate(tasks):
        report(JobProgress("comparing", done, len(tasks)))
        fresh: list[Finding] = []
        for finding in range_findings(plan, task, job):
            if finding.kind == "compared":
                compared += finding.size or 0
                continue
            if hash(finding) in seen:  # a record over two ranges is found twice
                continue
            seen.add(hash(finding))
            counts[finding.kind] += 1
            shown.add(finding)
            fresh.append(finding)
            if len(fresh) >= ROWS_PER_BATCH:
                fresh = _flush(table, plan, fresh)
        _flush(table, plan, fresh)
    return counts, compared


def _flush(table: _ResultFile | None, plan: PairPlan, findings: list[Finding]) -> list[Finding]:
    if table is not None and findings:
        sides = str(plan.master.endpoint), str(plan.replica.endpoint)
        table.add_of(sides, findings)
    return []


class _Shown:
    """The first findings in the order of the summary, whatever the number of all."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._found: list[Finding] = []

    def add(self, finding: Finding) -> None:
        self._found.append(finding)
        if len(self._found) > 2 * self._count_max + 1000:
            self._found = self.first()

    def first(self) -> list[Finding]:
        return sorted(self._found, key=_order)[: self._count_max]


def _order(finding: Finding) -> tuple[object, ...]:
    """As Spark sorts them: None before all values."""
    offset, item = finding.physical_offset, finding.item
    return (finding.pair, offset is not None, offset or 0, item is not None, item or "", finding.kind)


class _ResultFile:
    """One more file of the table that `--to` names; it appears whole, when the audit is over, or not at all."""

    def __init__(self, directory: Path, audit_id: str, now: datetime) -> None:
        self._path = directory / f"part-{audit_id}.parquet"
        self._stamp = (audit_id, now)
        self._stack = ExitStack()

    def __enter__(self) -> _ResultFile:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(f".{self._path.name}")
        out = self._stack.enter_context(replacing(self._path, None, temporary=aside))
        self._writer = self._stack.enter_context(pq.ParquetWriter(out, _SCHEMA))
        return self

    def __exit__(self, *problem: Any) -> None:
        self._stack.__exit__(*problem)

    def add(self, results: Iterable[PairResult], findings: Sequence[Finding]) -> None:
        for one in results:
            self.add_of((one.master, one.replica), [finding for finding in findings if finding.pair == one.pair])

    def add_of(self, sides: tuple[str, str], findings: Sequence[Finding]) -> None:
        batch = as_batch(findings)
        same = [
            pa.array([value] * len(findings), kind) for value, kind in zip((*self._stamp, *sides), _STAMPS, strict=True)
        ]
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = pa.RecordBatch.from_arrays(
            [same[0], same[1], columns.pop("pair"), same[2], same[3], *columns.values()], schema=_SCHEMA
        )
        self._writer.write_batch(rows)


_STAMPS = (pa.string(), pa.timestamp("us", tz="UTC"), pa.string(), pa.string())
_SCHEMA = pa.schema(
    [
        ("auditId", pa.string()),
        ("auditedAt", pa.timestamp("us", tz="UTC")),
        ("pair", pa.string()),
        ("master", pa.string()),
        ("replica", pa.string()),
        *[(field.name, field.type) for field in as_batch([]).schema if field.name != "pair"],
    ]
)
