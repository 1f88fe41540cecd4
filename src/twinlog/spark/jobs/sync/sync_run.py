"""One run of a synchronisation in the driver: what it knows from tick to tick.

A tick carries no data. It asks the name servers for the masters, gives each task a group of them, and adds the reports
of the tasks to the history tables. Everything that must survive is in the replica directories and these tables, so a
tick may be repeated, interrupted or run twice: it finds out by itself what is left to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from twinlog.base.clock import wall_clock_ms
from twinlog.client.admin.servers import read_lines
from twinlog.client.errors import BrokerRefused, ClientError
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.progress import JobProgress, ReportProgress
from twinlog.spark.jobs.sync.sync_plan import (
    BrokerTarget,
    SyncJob,
    check_folder,
    check_stores,
    choose_masters,
    share_out,
)
from twinlog.spark.jobs.sync.tables.history import HistoryRules, HistoryTables
from twinlog.spark.jobs.sync.tables.status_log import StatusLog
from twinlog.spark.jobs.sync.task import run_group
from twinlog.spark.jobs.sync.tick_work import BrokerReport, TickWork
from twinlog.spark.lake.lake import Lake
from twinlog.spark.remoting import connection_to, forget_connection
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
_REPORT_COLUMNS = "broker string, report binary"
_REPORT_SCHEMA = pa.schema([("broker", pa.string()), ("report", pa.binary())])
_COPY_SHARE = 0.8  # of the interval; the rest is for metadata and for Spark
_FIRST_LOCK_WAIT_S = 5.0  # tasks of a killed run may still hold the lock for a moment


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The results of one broker over all ticks."""

    broker: str
    address: str
    log_end: int = 0
    lag_bytes: int = 0
    bytes_copied: int = 0
    changes: int = 0
    failures: int = 0
    error: str = ""  # of the last tick


@dataclass(frozen=True, slots=True)
class SyncSummary:
    """What a synchronisation did."""

    ticks: int
    brokers: tuple[BrokerStatus, ...]
    seconds: float

    @property
    def failed(self) -> tuple[BrokerStatus, ...]:
        return tuple(one for one in self.brokers if one.error)

    @property
    def bytes_copied(self) -> int:
        return sum(one.bytes_copied for one in self.brokers)


class SyncRun:
    """Discovers masters, runs ticks, and sums up their reports."""

    def __init__(self, job: SyncJob, cores: int, report: ReportProgress, history: Lake | None = None) -> None:
        """`history` is given if the job's history is not a local path."""
        self._job = job
        self._cores = cores
        self._report = report
        self._tables = HistoryTables(
            history or job.history_place.local,
            HistoryRules(kinds=job.history_kinds, keep_ms=job.history_keep_ms, offsets_every_ms=job.offsets_every_ms),
        )
        self.status_log = StatusLog(job)
        self._targets: dict[str, BrokerTarget] = {}
        self._status: dict[str, BrokerStatus] = {}
        self._began = time.monotonic()
        self._ticks = 0
        self._busy = threading.Lock()
        self._finished = False
        self.error: Exception | None = None

    def discover(self) -> None:
        """Find the masters; raises if there are none, or not those that were asked for."""
        job, is_first = self._job, not self._targets
        found = self._ask_names() if job.addresses else choose_masters(Cluster(job.cluster).info(), job)
        # A master that is no longer registered stays on the list: that it cannot be reached is an error to report.
        self._targets.update({check_folder(one.name): one for one in found})
        if not self._targets:
            where = ";".join(job.cluster.name_servers)
            raise BadOption(f"no master is registered at {where}: start one, or ask another name server")
        if is_first and not self._status:  # an address that has not answered may be that broker
            check_stores(job, self._targets)

    def tick(self, frame: DataFrame, batch_id: int) -> None:
        """One micro-batch."""
        with self._busy:
            if self._finished:
                return
            try:
                self._tick(frame.sparkSession)
            except Exception as error:
                self.error = error
                raise

    def finish(self) -> None:
        """Start no more ticks, and wait for the running one."""
        self._finished = True
        if self._busy.acquire(timeout=2 * self._job.every_ms / 1000 + _FIRST_LOCK_WAIT_S):
            self._busy.release()

    def run_without_query(self, spark: SparkSession, stop: threading.Event) -> None:
        """Run ticks without a query: under Spark Connect its batches would run in another process."""
        while not stop.is_set():
            began = time.monotonic()
            self._tick(spark)
            if self._job.once:
                return
            stop.wait(max(0.0, self._job.every_ms / 1000 - (time.monotonic() - began)))

    def _tick(self, spark: SparkSession) -> None:
        if self._ticks:
            self._discover_again()
        goals: dict[str, int] = {}
        targets = list(self._targets.values())
        while targets:
            reports = self.round(spark, targets)
            for one in reports:
                goals.setdefault(one.broker, one.master_end)
            behind = {one.broker for one in reports if is_behind(one, goals[one.broker])}
            targets = [one for one in targets if one.name in behind] if self._job.once else []
        self._ticks += 1

    def round(self, spark: SparkSession, targets: list[BrokerTarget]) -> list[BrokerReport]:
        """Run the tasks for these brokers once; their reports are in the tables when this returns."""
        job, began_ms = self._job, wall_clock_ms()
        work = TickWork(
            to=job.to,
            cluster=job.cluster,
            groups=share_out(targets, self._cores),
            drained=self._tables.drained,
            tick_ms=int(job.every_ms * _COPY_SHARE),
            range_bytes_max=job.range_bytes_max,
            modes=job.modes,
            keep=job.keep,
            ha_secret=job.ha_secret,
            lock_wait_s=0.0 if self._ticks else _FIRST_LOCK_WAIT_S,
        )
        numbers = spark.range(0, len(work.groups), 1, len(work.groups))
        rows = numbers.mapInArrow(_task(work), _REPORT_COLUMNS).collect()
        reports = [msgspec.json.decode(row.report, type=BrokerReport) for row in rows]
        self._tables.add(reports)
        for one in reports:
            self._add_report(one)
        unreached = {name: one.error for name, one in self._status.items() if name not in self._targets}
        self.status_log.keep_only(self._targets.keys() | unreached.keys())
        self.status_log.add(began_ms, reports, unreached)
        self._report(self._progress())
        return reports

    def summary(self) -> SyncSummary:
        brokers = tuple(self._status[name] for name in sorted(self._status))
        return SyncSummary(self._ticks, brokers, time.monotonic() - self._began)

    def _add_report(self, one: BrokerReport) -> None:
        before = self._status.get(one.broker, BrokerStatus(one.broker, one.address))
        if one.error and one.error != before.error:
            log.warning("a broker was not synchronised", broker=one.broker, address=one.address, error=one.error)
        self._status[one.broker] = replace(
            before,
            address=one.address,
            log_end=one.end or before.log_end,
            lag_bytes=one.lag if one.master_end else before.lag_bytes,
            bytes_copied=before.bytes_copied + max(0, one.end - one.begin),
            changes=before.changes + one.changes,
            failures=before.failures + bool(one.error),
            error=one.error,
        )

    def _progress(self) -> JobProgress:
        brokers = self._status.values()
        copied, lag = sum(one.bytes_copied for one in brokers), sum(one.lag_bytes for one in brokers)
        behind = sorted((one for one in brokers if one.lag_bytes), key=lambda one: -one.lag_bytes)
        words = [f"{one.broker} {_megabytes(one.lag_bytes)} behind" for one in behind[:3]]
        if len(behind) > 3:
            words.append(f"{len(behind) - 3} more behind")
        failed = sum(bool(one.error) for one in brokers)
        if failed:
            words.append(f"{failed} failed")
        text = f"tick {self._ticks + 1}, {len(brokers)} brokers: {', '.join(words) or 'all in step'}"
        return JobProgress(text, copied, copied + lag, "bytes")

    def _discover_again(self) -> None:
        """Find masters that moved or are new; if no name server answers, continue with the known ones."""
        try:
            self.discover()
        except (NetError, ClientError, BadOption) as error:
            log.warning("masters could not be looked up", error=str(error))

    def _ask_names(self) -> list[BrokerTarget]:
        """The brokers at the given addresses whose names are not known yet; one that does not answer is an error."""
        known = {one.address for one in self._targets.values()}
        found, problem = [], None
        for address in self._job.addresses:
            if address in known:
                continue
            try:
                found.append(self._ask_name(address, [*self._targets.values(), *found]))
                self._status.pop(address, None)
            except (NetError, BrokerRefused, BadOption) as error:
                if isinstance(error, BadOption) and not self._ticks:
                    raise
                problem = error
                before = self._status.get(address, BrokerStatus(address, address))
                self._status[address] = replace(before, failures=before.failures + 1, error=str(error))
        if problem is not None and not found and not known:
            raise problem
        return found

    def _ask_name(self, address: str, taken: Iterable[BrokerTarget]) -> BrokerTarget:
        options = self._job.cluster
        try:
            (answer,) = connection_to(address, options).ask([Command(RequestCode.GET_BROKER_CONFIG)])
        except NetError:
            forget_connection(address, options)
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerRefused(RequestCode.GET_BROKER_CONFIG, answer.code, answer.remark, address)
        name = read_lines(bytes(answer.body)).get("brokerName", "")
        for other in taken:
            if other.name == name:
                hint = "their replicas would share a folder; copy them to different directories"
                raise BadOption(f"{other.address} and {address} are both called {name!r}: {hint}")
        return BrokerTarget(name, address, self._job.stores.get(name))


def is_behind(report: BrokerReport, goal: int) -> bool:
    """Whether another round would bring the replica closer to where its master was."""
    return not report.error and report.begin < report.end < min(goal, report.master_end)


def _task(work: TickWork) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        patient = replace(work, lock_wait_s=_FIRST_LOCK_WAIT_S) if _is_retried() else work
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reports = run_group(patient, number)
                rows = {
                    "broker": [one.broker for one in reports],
                    "report": [msgspec.json.encode(one) for one in reports],
                }
                yield pa.RecordBatch.from_pydict(rows, schema=_REPORT_SCHEMA)

    return run


def _is_retried() -> bool:
    """Whether this task ran before on a worker that was lost; a process of it may live on for a moment."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"
