"""Every service of one broker, and every request code that it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from twinlog.broker.admin import (
    account_handlers,
    config_handlers,
    group_handlers,
    operation_handlers,
    reset_handlers,
    topic_handlers,
)
from twinlog.broker.clients import client_handlers, connection_handlers, lock_handlers, offset_handlers
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.naming.register_service import RegisterService
from twinlog.broker.pulls import pull, query_handlers
from twinlog.broker.pulls.hold_service import HoldService
from twinlog.broker.replication import metadata_handlers, replication_handlers
from twinlog.broker.replication.failover_host import FailoverHost
from twinlog.broker.replication.guarded import APPENDING, CHANGING, guarded, guarded_change
from twinlog.broker.replication.repair_service import RepairService
from twinlog.broker.replication.replication_service import ReplicationService
from twinlog.broker.sends import reply, send, send_back
from twinlog.broker.stats import runtime_info, stats_handlers
from twinlog.broker.stats.group_lags import GroupLags
from twinlog.broker.stats.stats_service import StatsService
from twinlog.broker.upkeep.flush_service import FlushService, QueueFlushService
from twinlog.broker.upkeep.maintenance_service import MaintenanceService, save_service
from twinlog.failover.failover_service import FailoverService
from twinlog.failover.group_keys import open_group

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler
    from twinlog.net.pool import ConnectionPool

HANDLERS = (
    send,
    send_back,
    reply,
    pull,
    query_handlers,
    client_handlers,
    offset_handlers,
    lock_handlers,
    topic_handlers,
    group_handlers,
    config_handlers,
    account_handlers,
    connection_handlers,
    stats_handlers,
    reset_handlers,
    operation_handlers,
)


class Service(Protocol):
    async def run(self) -> None: ...


class BrokerServices:
    """The services of one broker; making them registers their listeners in `ctx`."""

    def __init__(self, ctx: BrokerContext, pool: ConnectionPool) -> None:
        self._ctx = ctx
        self.deferred = DeferredServices(ctx)
        self.register = RegisterService(ctx, pool)
        self.replication = ReplicationService(ctx, pool, self.register, self.deferred.synchronised)
        self.vital: tuple[Service, ...] = (
            HoldService(ctx, pull.PullHandler(ctx)),
            FlushService(ctx),
            QueueFlushService(ctx),
            save_service(ctx),
            MaintenanceService(ctx),
            *self.deferred,
            self.replication,
        )
        """In the order they start. An unexpected error of one ends the broker, since going on could lose messages."""
        self.lags = GroupLags(ctx)  # runs while metrics are served
        self.failover_host = FailoverHost(ctx, self.replication) if ctx.master_is_chosen else None
        self.repair = RepairService(ctx, self.replication, pool)
        self.fenced: tuple[Service, ...] = (
            StatsService(ctx, ctx.stats),
            self.register,
            self.repair,
            *self._failover(),
        )
        """Started after those. An unexpected error of one is logged, and the service is run again."""

    def _failover(self) -> Iterator[Service]:
        settings = self._ctx.settings
        if self.failover_host is not None:
            conf = self._ctx.conf.failover
            timeout_s = conf.lease_seconds / 4
            group = open_group(conf, settings.cluster_name, settings.broker_name, timeout_s=timeout_s)
            service = FailoverService(self.failover_host, group, lambda: self._ctx.conf)
            self._ctx.why_refused = self._ctx.pending_sends.why_late = service.why_refused
            yield service

    def handlers(self) -> dict[int, Handler]:
        """The handler of each request code."""
        ctx, merged = self._ctx, dict(self.deferred.handlers())
        for module in HANDLERS:
            merged.update(module.handlers(ctx))
        merged.update({code: guarded(ctx, merged[code]) for code in APPENDING & merged.keys()})
        merged.update({code: guarded_change(ctx, merged[code]) for code in CHANGING & merged.keys()})
        return {
            **merged,
            **metadata_handlers.handlers(ctx, self.deferred.timers_in_use),
            **runtime_info.handlers(ctx, self.deferred.timers),
            **replication_handlers.handlers(ctx, self.replication),
        }
