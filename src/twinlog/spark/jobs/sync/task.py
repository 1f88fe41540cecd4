"""What one Spark task does in a tick: the ticks of its brokers, all at the same time on one event loop.

An error of one broker is in its report; the other brokers are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from twinlog.base.system_calls import new_event_loop
from twinlog.client.signing import sign
from twinlog.net.pool import ConnectionPool
from twinlog.spark.cluster_options import ClusterOptions, tls_of
from twinlog.spark.jobs.sync.broker_tick import BrokerErrors, BrokerTick
from twinlog.spark.jobs.sync.copy_slots import DISK_ERRORS, CopySlots
from twinlog.spark.jobs.sync.replicas.replica import Replica, SparseFiles
from twinlog.spark.jobs.sync.sync_plan import COPIES_AT_ONCE, BrokerTarget, check_folder
from twinlog.spark.jobs.sync.tick_work import BrokerReport, TickWork

_BROKERS_AT_ONCE = 32


def run_group(work: TickWork, number: int) -> list[BrokerReport]:
    """Run one task; returns a report for each of its brokers."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_Group(work).run(work.groups[number]))


class _Group:
    """The brokers of one task."""

    def __init__(self, work: TickWork) -> None:
        self._work = work
        self._brokers = asyncio.Semaphore(_BROKERS_AT_ONCE)
        self._slots = CopySlots(work)

    async def run(self, targets: Sequence[BrokerTarget]) -> list[BrokerReport]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(COPIES_AT_ONCE + 8, thread_name_prefix="sync"))
        options = self._work.cluster
        pool = ConnectionPool(
            tls=tls_of(options),
            connect_timeout_ms=options.connect_timeout_ms,
            before_request=_signer(options),
        )
        try:
            return list(await asyncio.gather(*(self._tick(pool, target) for target in targets)))
        finally:
            await pool.close()

    async def _tick(self, pool: ConnectionPool, target: BrokerTarget) -> BrokerReport:
        work, report = self._work, BrokerReport(target.name, target.address)
        async with self._brokers:
            began = time.monotonic()
            try:
                root = Path(work.to) / check_folder(target.name)
                ops = SparseFiles(work.modes)
                replica = await asyncio.to_thread(Replica.open, root, lock_wait_s=work.lock_wait_s, ops=ops)
                with contextlib.closing(replica):
                    try:
                        await BrokerTick(work, self._slots, pool, target, replica, report).run()
                    finally:
                        self._describe(replica, report)
            except BrokerErrors as error:
                text = _error_text(error, Path(work.to) / target.name)
                report.error = "; ".join(filter(None, (report.error, text)))
            report.seconds = time.monotonic() - began
        return report

    def _describe(self, replica: Replica, report: BrokerReport) -> None:
        """Add to the report what the replica holds now, and what of it is not in the history tables."""
        drained = self._work.drained_of(report.broker, replica.state.replica)
        report.replica, report.end = replica.state.replica, replica.state.end
        report.start, report.versions = replica.log_start, replica.state.versions
        report.entries = replica.entries(drained.entries)
        report.ranges = [one for one in replica.state.ranges if one.sequence > drained.ranges]


def _error_text(error: Exception, root: Path) -> str:
    """An error in words; for one of the replica's disk also where, and the next step."""
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        path = error.filename or root
        return f"{path} cannot be written ({error.strerror}): free space or allow writing; the next tick continues"
    return str(error) or type(error).__name__


def _signer(options: ClusterOptions):
    credentials = options.credentials
    return None if credentials is None else lambda command: sign(command, credentials)
