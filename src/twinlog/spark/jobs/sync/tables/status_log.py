"""Writes the status of every tick: the last one for operators and scripts, and all of them as a table.

A status that cannot be written is a warning and no reason to stop: the replicas are what matters.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from twinlog.base.clock import wall_clock_ms
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.tables.history import AppendedTable, CannotWriteHistory, TableRules
from twinlog.spark.jobs.sync.tick_work import BrokerReport
from twinlog.spark.jobs.sync_status import (
    DIRECTORY,
    REPLICA_FOLDER,
    TICKS,
    BrokerState,
    SyncStatus,
    by_broker,
    load_status,
    observed,
    save_status,
)
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_TIME = pa.timestamp("us", tz="UTC")
_VERSION = pa.struct([("stateVersion", pa.int64()), ("timestamp", pa.int64()), ("counter", pa.int64())])
TICK_SCHEMA = pa.schema(
    [
        ("tick", pa.int64()),
        ("tickAt", _TIME),
        ("broker", pa.string()),
        ("address", pa.string()),
        ("replica", pa.string()),
        ("replicaStart", pa.int64()),
        ("replicaEnd", pa.int64()),
        ("masterEnd", pa.int64()),
        ("lagBytes", pa.int64()),
        ("lagSeconds", pa.float64()),
        ("inStepAt", _TIME),
        ("copiedBytes", pa.int64()),
        ("changes", pa.int64()),
        ("versions", pa.map_(pa.string(), _VERSION)),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("failingSince", _TIME),
        ("failedTicks", pa.int64()),
    ]
)


class StatusLog:
    """The status of one synchronisation, for the one job that writes it."""

    def __init__(self, job: SyncJob, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._to = Path(job.to)
        self._job = job
        self._clock_ms = clock_ms
        self._ticks: AppendedTable | None = None
        self._problem = ""
        try:
            before = load_status(self._to)
        except (OSError, BadOption) as error:  # a damaged status is written again
            log.warning("the status of the last run is not used", error=str(error))
            before = None
        self._brokers: dict[str, BrokerState] = dict(by_broker(before))
        now_ms, number = clock_ms(), 0 if before is None else before.tick
        self.status = SyncStatus(
            tick=number,
            began_ms=now_ms,
            written_ms=now_ms,
            every_ms=job.every_ms,
            once=job.once,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def add(self, began_ms: int, reports: Iterable[BrokerReport], unreached: Mapping[str, str]) -> SyncStatus:
        """Write the status after a tick; `unreached` are addresses without a name yet, and why."""
        now_ms, status = self._clock_ms(), self.status
        found = [state_of(self._brokers.get(one.broker), one, began_ms, now_ms) for one in reports]
        found += [self._away(address, address, error, now_ms) for address, error in unreached.items()]
        self._brokers |= {one.broker: one for one in found}
        self.status = SyncStatus(
            tick=status.tick + 1,
            began_ms=began_ms,
            written_ms=now_ms,
            every_ms=status.every_ms,
            once=status.once,
            host=status.host,
            pid=status.pid,
            brokers=[self._brokers[name] for name in sorted(self._brokers)],
        )
        self._save(found)
        return self.status

    def keep_only(self, copied: Iterable[str]) -> None:
        """Forget brokers of earlier runs that this one does not copy; a replica that is left alone is an error."""
        names, now_ms = set(copied), self._clock_ms()
        chosen = self._job.brokers or self._job.addresses or self._job.cluster_name
        for name, state in list(self._brokers.items()):
            if name in names:
                continue
            if chosen or not (self._to / name / REPLICA_FOLDER).is_dir():
                del self._brokers[name]
            else:
                why = f"no master of this name is registered; if that is right, move {self._to / name} away"
                self._brokers[name] = self._away(name, state.address, why, now_ms)

    def end(self, error: str = "") -> None:
        """Record that the run ended, and was not killed; `error` is why it could not go on."""
        self.status.ended_ms, self.status.error = self._clock_ms(), error
        self._save([])

    def _away(self, name: str, address: str, error: str, now_ms: int) -> BrokerState:
        return state_of(self._brokers.get(name), BrokerReport(name, address, error=error), now_ms, now_ms)

    def _save(self, found: list[BrokerState]) -> None:
        try:
            save_status(self._to, self.status)
            if found:
                if self._ticks is None:
                    rules = TableRules(
                        time="tickAt", keep_ms=self._job.status_keep_ms, last_of=(), order=("broker", "tickAt")
                    )
                    self._ticks = AppendedTable(self._to / DIRECTORY / TICKS, TICK_SCHEMA, rules)
                self._ticks.append([_row(self.status, one) for one in found])
                self._ticks.tidy(self._clock_ms())
            self._problem = ""
        except (OSError, CannotWriteHistory) as error:
            if str(error) != self._problem:
                log.warning("the status cannot be written", path=str(self._to / DIRECTORY), error=str(error))
            self._problem = str(error)


def state_of(before: BrokerState | None, report: BrokerReport, began_ms: int, now_ms: int) -> BrokerState:
    """A broker's state after a tick; what a report does not say stays as it was."""
    if before is not None and report.replica and report.replica != before.replica:
        before = None  # it was begun anew
    known = before or BrokerState(broker=report.broker, address=report.address)
    answered = bool(report.master_end) or (bool(report.replica) and not report.error)
    end = report.end if report.replica else known.replica_end
    master_end = report.master_end if answered else known.master_end
    in_step_ms, lag_seconds, waiting = observed(
        before, began_ms=began_ms, now_ms=now_ms, end=end, master_end=master_end, answered=answered
    )
    return BrokerState(
        broker=report.broker,
        address=report.address,
        replica=report.replica or known.replica,
        replica_start=report.start if report.replica else known.replica_start,
        replica_end=end,
        master_end=master_end,
        lag_bytes=max(0, master_end - end) if answered else None,
        lag_seconds=lag_seconds,
        in_step_ms=in_step_ms,
        copied_bytes=max(0, report.end - report.begin),
        changes=report.changes,
        versions=report.versions or known.versions,
        seconds=round(report.seconds, 3),
        error=report.error,
        failing_since_ms=(known.failing_since_ms or began_ms) if report.error else None,
        failed_ticks=known.failed_ticks + 1 if report.error else 0,
        observed=waiting,
    )


def _row(status: SyncStatus, one: BrokerState) -> dict[str, Any]:
    versions = [
        (kind, {"stateVersion": at.state_version, "timestamp": at.timestamp, "counter": at.counter})
        for kind, at in one.versions.items()
    ]
    return {
        "tick": status.tick,
        "tickAt": status.began_ms * 1000,
        "broker": one.broker,
        "address": one.address,
        "replica": one.replica,
        "replicaStart": one.replica_start,
        "replicaEnd": one.replica_end,
        "masterEnd": one.master_end,
        "lagBytes": one.lag_bytes,
        "lagSeconds": one.lag_seconds,
        "inStepAt": None if one.in_step_ms is None else one.in_step_ms * 1000,
        "copiedBytes": one.copied_bytes,
        "changes": one.changes,
        "versions": versions,
        "seconds": one.seconds,
        "error": one.error or None,
        "failingSince": None if one.failing_since_ms is None else one.failing_since_ms * 1000,
        "failedTicks": one.failed_ticks,
    }
