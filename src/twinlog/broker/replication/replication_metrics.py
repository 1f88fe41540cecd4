"""Prometheus metrics of replication: the lag of a master's replicas, a replica's link and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.broker.replication.replication_status import ReplicationReport
from twinlog.telemetry.rocketmq_names import NODE

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.repair_service import RepairService
    from twinlog.broker.replication.replication_service import ReplicationService
    from twinlog.replication.master.replica_connection import ReplicaView
    from twinlog.replication.replica.metadata_status import KindStatus
    from twinlog.telemetry.metrics import Metrics


def watch_replication(metrics: Metrics, ctx: BrokerContext, replication: ReplicationService) -> None:
    """Register everything about replication with `metrics`."""
    _watch_master(metrics, ctx, replication)
    _watch_link(metrics, ctx, replication)
    _watch_metadata(metrics, replication)


def watch_repair(metrics: Metrics, ctx: BrokerContext, repair: RepairService) -> None:
    """Register what is known of damaged records."""
    metrics.watch(
        "rocketmq_ha_damaged_records",
        "Damaged records of the log that reads have met and that are not repaired",
        lambda: len(ctx.store.damaged),
    )
    metrics.watch(
        "rocketmq_ha_repaired_records",
        "Damaged records that were fetched from the twin and written again",
        lambda: repair.repaired,
        kind="counter",
    )
    metrics.watch(
        "rocketmq_ha_repair_failures",
        "Attempts to fetch a damaged record from the twin that failed",
        lambda: repair.failures,
        kind="counter",
    )


def _watch_master(metrics: Metrics, ctx: BrokerContext, replication: ReplicationService) -> None:
    report, master = ReplicationReport(ctx, replication), replication.master

    def watch(name: str, text: str, read: Callable[[ReplicaView], float]) -> None:
        def rows() -> dict[tuple[str, ...], float]:
            node = (ctx.settings.cluster_name, "broker", ctx.settings.broker_name)
            return {(*node, _label(view)): read(view) for view in report.replicas()}

        metrics.watch(f"rocketmq_ha_replica_{name}", text, rows, label_names=(*NODE, "replica"))

    watch("lag_bytes", "Log bytes not acknowledged", lambda view: report.lag(view.acked).bytes)
    watch("lag_messages", "Messages not acknowledged", lambda view: report.lag(view.acked).messages)
    watch("lag_seconds", "Age of the oldest one", lambda view: report.lag(view.acked).milliseconds / 1000)
    watch("in_sync", "1 while it is near enough to its master", lambda view: float(report.is_in_sync(view)))
    watch("transfer_bytes_per_second", "Log bytes sent a second", lambda view: view.bytes_per_second)
    metrics.watch("rocketmq_ha_replicas", "Connections of replicas", lambda: sum(1 for _ in report.replicas()))
    metrics.watch(
        "rocketmq_ha_in_sync_replicas",
        "Replicas that are near enough to their master",
        lambda: master.acks.in_sync(ctx.store.log_end, ctx.conf.replication.gap_bytes_max),
    )
    metrics.watch(
        "rocketmq_ha_counted_out",
        "Times a replica was late or did not catch up, so that no send waits for it any more",
        lambda: replication.send_demand.counted_out,
        kind="counter",
    )
    metrics.watch(
        "rocketmq_ha_identity_conflicts",
        "Times another broker was found running with this one's name and id",
        lambda: replication.members.identity_conflicts,
        kind="counter",
    )
    metrics.watch(
        "rocketmq_ha_master_epoch",
        "Epoch of this master, or the highest that this replica has seen",
        lambda: replication.epoch,
    )
    metrics.watch(
        "rocketmq_ha_stalls",
        "Times this broker was held up so long that it asked whether it is still the master",
        lambda: ctx.guard.stalls,
        kind="counter",
    )
    metrics.watch(
        "rocketmq_ha_refused_connections",
        "HA connections that were closed because of what they sent",
        lambda: master.refused,
        kind="counter",
    )


def _watch_link(metrics: Metrics, ctx: BrokerContext, replication: ReplicationService) -> None:
    status = replication.replica.status

    def count(name: str, text: str) -> None:
        metrics.watch(f"rocketmq_ha_{name}", text, lambda: getattr(status, name), kind="counter")

    metrics.watch(
        "rocketmq_ha_following",
        "1 while this replica follows its master",
        lambda: float(not ctx.is_master and status.is_following),
    )
    count("bytes_received", "Bytes that came from the master")
    count("reconnects", "Times the master was joined")
    count("refusals", "Times this replica did not join, as its log is ahead of or different from the master's")
    count("damaged_transfers", "Transfers with invalid records that were requested again")


def _watch_metadata(metrics: Metrics, replication: ReplicationService) -> None:
    status = replication.sync.status

    def by_kind(read: Callable[[KindStatus], float]) -> Callable[[], dict[tuple[str, ...], float]]:
        return lambda: {(kind,): read(row) for kind, row in status.kinds.items()}

    def count(name: str, text: str, read: Callable[[KindStatus], float]) -> None:
        metrics.watch(f"rocketmq_slave_sync_{name}", text, by_kind(read), kind="counter", label_names=("kind",))

    metrics.watch(
        "rocketmq_slave_sync_last_success_seconds",
        "Unix time of the last good synchronisation",
        by_kind(lambda row: row.synced_ms / 1000),
        label_names=("kind",),
    )
    count("failures", "Failed synchronisations", lambda row: row.failures)
    count("changes", "Synchronisations that changed something here", lambda row: row.changes)
    count("bytes", "Bytes received for synchronisations", lambda row: row.bytes_received)
    metrics.watch("rocketmq_slave_sync_rounds", "Rounds over all kinds", lambda: status.rounds, kind="counter")


def _label(view: ReplicaView) -> str:
    """A replica's broker id if it sent one, else its address: Java replicas send none."""
    return str(view.broker_id) if view.broker_id is not None else view.peer
