"""Prometheus metrics of a running synchronisation, on a port of the driver."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from twinlog.base.addresses import address_text
from twinlog.base.clock import wall_clock_ms
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.tables.status_log import StatusLog
from twinlog.spark.jobs.sync_status import BrokerState, SyncStatus, age_seconds
from twinlog.telemetry.metrics import Metrics
from twinlog.telemetry.metrics_port import MetricsServer

_START_SECONDS = 10
_BROKER = ("broker",)


def sync_metrics(status: Callable[[], SyncStatus], clock_ms: Callable[[], int] = wall_clock_ms) -> Metrics:
    """The numbers of the last tick; a number that is not known is left out."""
    metrics = Metrics()

    def watch(name: str, text: str, read: Callable[[BrokerState], float | None]) -> None:
        def rows() -> dict[tuple[str, ...], float]:
            found = ((one.broker, read(one)) for one in status().brokers)
            return {(broker,): value for broker, value in found if value is not None}

        metrics.watch(f"twinlog_sync_{name}", text, rows, label_names=_BROKER)

    def versions() -> dict[tuple[str, ...], float]:
        return {
            (one.broker, kind): version.counter for one in status().brokers for kind, version in one.versions.items()
        }

    watch("replica_end_bytes", "Where the replica's log ends", lambda one: one.replica_end)
    watch("replica_start_bytes", "Where the replica's log begins", lambda one: one.replica_start)
    watch("master_end_bytes", "Where the master's log ended when it was asked last", lambda one: one.master_end)
    watch("lag_bytes", "Bytes that the replica lacked after the last tick", lambda one: one.lag_bytes)
    watch(
        "lag_seconds",
        "Seconds since the replica held all that its master had; 0 when it does",
        lambda one: age_seconds(one, clock_ms()),
    )
    watch("failed_ticks", "Ticks in a row that failed", lambda one: one.failed_ticks)
    watch("tick_broker_seconds", "Seconds that the last tick took for this broker", lambda one: one.seconds)
    metrics.watch(
        "twinlog_sync_metadata_version",
        "Counter of the data version of the replica's tables",
        versions,
        label_names=("broker", "kind"),
    )
    metrics.watch("twinlog_sync_ticks", "Ticks since the first run", lambda: status().tick, kind="counter")
    metrics.watch("twinlog_sync_tick_seconds", "Seconds that the last tick took", lambda: _tick_seconds(status()))
    metrics.watch(
        "twinlog_sync_last_tick_timestamp_seconds", "When the last tick ended", lambda: status().written_ms / 1000
    )
    metrics.watch("twinlog_sync_brokers", "Brokers that are synchronised", lambda: len(status().brokers))
    return metrics


def _tick_seconds(status: SyncStatus) -> float:
    return max(0, status.written_ms - status.began_ms) / 1000


@contextlib.contextmanager
def serve_metrics(log: StatusLog, host: str, port: int) -> Iterator[int]:
    """Answer scrapes in a thread of their own; yields the port. BadOption if it cannot be opened."""
    server = MetricsServer(sync_metrics(lambda: log.status), host=host, port=port)
    ready: threading.Event = threading.Event()
    problem: list[OSError] = []
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(server.start())
        except OSError as error:
            problem.append(error)
            return
        finally:
            ready.set()
        loop.run_forever()
        loop.run_until_complete(server.stop())

    thread = threading.Thread(target=run, name="sync-metrics", daemon=True)
    thread.start()
    ready.wait(_START_SECONDS)
    try:
        if problem:
            where, cause = address_text(host, port), problem[0].__cause__ or problem[0]
            raise BadOption(f"--metrics-port: {where} cannot be opened ({cause}): choose another port")
        yield server.port
    finally:
        if not problem:
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_SECONDS)
        loop.close()
