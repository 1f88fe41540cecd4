"""One broker, put together: an open store, the tables, the services around them, and two ports.

Start: tables are loaded, the store is recovered, services are made, ports listen, services run, the broker registers.
End: the broker unregisters, ports close, services are cancelled, tables are saved, the store closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from twinlog.base.clock import SteadyClock, monotonic_ms, ticks_ms, ticks_ns, wall_clock_ms
from twinlog.broker.clients.client_table import ClientTable
from twinlog.broker.clients.lock_table import LockTable
from twinlog.broker.context import BrokerContext
from twinlog.broker.opening import load_tables, open_broker_store, open_filters, open_in_thread, saved_at_end
from twinlog.broker.ports import listening, with_port
from twinlog.broker.pulls.hold import HoldTable
from twinlog.broker.replication.health import STARTING, answer_page, health_of
from twinlog.broker.replication.replication_metrics import watch_repair, watch_replication
from twinlog.broker.replication.tail_cut import RestartToCut, finish_cut
from twinlog.broker.sends.copy_budget import CopyBudget
from twinlog.broker.sends.pending_sends import PendingSends
from twinlog.broker.services import BrokerServices
from twinlog.broker.stats.broker_metrics import watch_broker
from twinlog.broker.stats.rocketmq_metrics import watch_messages
from twinlog.broker.stats.stats import BrokerStats
from twinlog.broker.task_errors import single_error
from twinlog.broker.topics.auto_created import AutoCreated
from twinlog.client.signing import Credentials, sign
from twinlog.net.pool import ConnectionPool
from twinlog.net.tls import client_context
from twinlog.replication.master.guard import MasterGuard
from twinlog.security.gate import AccountGate
from twinlog.security.plain_acl import PlainGate
from twinlog.security.plain_files import PlainFiles
from twinlog.settings.access import plain_acl_home
from twinlog.settings.accounts import parse_account
from twinlog.telemetry.fence import Fence
from twinlog.telemetry.log import get_logger
from twinlog.wire.twinlog_codes import TwinlogCode
from twinlog.wire.values.message_id import UniqueIds

if TYPE_CHECKING:
    from twinlog.broker.naming.register_service import RegisterService
    from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
    from twinlog.broker.replication.replication_service import ReplicationService
    from twinlog.metadata.tables import MetadataTables
    from twinlog.net.connection import Handler
    from twinlog.net.server import Server
    from twinlog.security.gate import Gate
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.message_store import MessageStore
    from twinlog.telemetry.metrics import Metrics
    from twinlog.wire.command import Command

log = get_logger(__name__)
REGISTRATION_S_MAX = 3.0  # a name server that does not answer does not keep the broker from being ready


class Broker:
    """One broker: an open store and the services around it."""

    def __init__(
        self,
        conf: BrokerConf,
        *,
        wall_ms: Callable[[], int] = wall_clock_ms,
        ticks_ns: Callable[[], int] = ticks_ns,
        disk_ratio: Callable[[], float] | None = None,  # how full the disk is; by default it is asked
        metrics: Metrics | None = None,
        on_ready: Callable[[Broker], None] | None = None,
    ) -> None:
        self.conf = with_port(conf)  # of the start; `context.conf` has what changed since
        self._metrics = metrics
        self.context: BrokerContext | None = None
        self.servers: list[Server] = []
        self.replication: ReplicationService | None = None
        self._wall_ms, self._disk_ratio = wall_ms, disk_ratio
        self._clock_ms = SteadyClock(wall_ms, ticks_ns)
        self.stats = BrokerStats(self._clock_ms(), self.conf.broker.cluster_name)
        self._on_ready = on_ready
        self._is_ready = False

    @property
    def address(self) -> str:
        """Where clients reach this broker."""
        return self.conf.broker.address

    def answer_page(self, path: str, query: str) -> tuple[int, bytes] | None:
        """(status, body) of a GET on the metrics port; see `replication/health.py`."""
        is_ready = self._is_ready and self.context is not None and self.replication is not None
        return answer_page(health_of(self.context, self.replication) if is_ready else STARTING, path, query)  # type: ignore[arg-type]

    async def run(self) -> None:
        """Serve until cancelled. Recovery ends before any port opens; the store closes last.

        With failover, a log that differs from the new master's is cut while nobody uses it: the broker starts again.
        """
        while True:
            is_wanted = self.conf.failover.etcd is not None
            await asyncio.to_thread(finish_cut, self.conf.store, self._clock_ms(), is_wanted=is_wanted)
            try:
                with self._metrics.scope() if self._metrics is not None else contextlib.nullcontext():
                    return await self._run_once()
            except RestartToCut as error:
                log.warning(str(error))
                if self.context is not None and not self.context.is_master:
                    self.conf = self.context.conf  # with what an operator has changed since the start
                self.context = self.replication = None
                self.servers.clear()

    async def _run_once(self) -> None:
        started = time.perf_counter()
        tables = load_tables(self.conf, self._clock_ms())
        filters = open_filters(self.conf, tables, self._clock_ms())
        with await open_in_thread(partial(self._open_store, tables, filters)) as store, saved_at_end(tables, store):
            ctx = self.context = self._make_context(tables, store, filters)
            pushed_by_master: dict[int, Handler] = {}
            net = self.conf.net
            tls = client_context(net.tls)
            pool = ConnectionPool(
                pushed_by_master,
                tls=tls,
                connect_timeout_ms=net.connect_timeout_ms,
                before_request=signer(self.conf.broker.own_account),
            )
            services = BrokerServices(ctx, pool)
            replication = self.replication = services.replication
            pushed_by_master[TwinlogCode.METADATA_CHANGED] = lambda request: replication.sync.wake()
            pushed_by_master[TwinlogCode.STILL_REGISTERED] = lambda request: services.register.still_registered(request)
            self._watch(ctx, services)
            try:
                with single_error():
                    await self._serve(ctx, services, started)
            finally:
                ctx.table_work.close()
                ctx.disk_work.close()
                await pool.close()
                store.flush()  # timers below are saved as delivered only if their copies are on disk
                services.deferred.timers.save()
                if services.failover_host is not None:
                    services.failover_host.stopped()

    async def _serve(self, ctx: BrokerContext, services: BrokerServices, started: float) -> None:
        handlers = services.handlers()
        async with asyncio.TaskGroup() as tasks, listening(ctx, handlers, self.servers, self._metrics):
            services.replication.listen()
            for service in services.vital:
                tasks.create_task(service.run(), name=type(service).__name__)
            fenced = services.fenced if self._metrics is None else (*services.fenced, services.lags)
            for service in fenced:
                name = type(service).__name__
                tasks.create_task(ctx.fence.run(name, service.run, raises=(RestartToCut,)), name=name)
            await services.replication.check_start()
            await self._register(ctx, services.register)
            log.info("ready", address=self.address, seconds=round(time.perf_counter() - started, 3))
            if self._on_ready is not None:
                self._on_ready(self)
            self._is_ready = True
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._is_ready = False
                await ctx.fence.attempt(type(services.register).__name__, services.register.unregister)

    async def _register(self, ctx: BrokerContext, register: RegisterService) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTRATION_S_MAX):
                await ctx.fence.attempt(type(register).__name__, register.register_first)

    def _watch(self, ctx: BrokerContext, services: BrokerServices) -> None:
        if self._metrics is not None:
            watch_broker(self._metrics, ctx, self.servers)
            deferred = services.deferred
            watch_messages(self._metrics, ctx, deferred.timers, deferred.transactions, services.lags)
            watch_replication(self._metrics, ctx, services.replication)
            watch_repair(self._metrics, ctx, services.repair)

    # -- parts ---------------------------------------------------------------------------------

    def _open_store(
        self, tables: MetadataTables, filters: ConsumerFilters, stopped: Callable[[], bool] = lambda: False
    ) -> MessageStore:
        def conf() -> BrokerConf:
            return self.conf if self.context is None else self.context.conf

        return open_broker_store(
            conf,
            tables,
            filters,
            wall_ms=self._wall_ms,
            stats=self.stats,
            stopped=stopped,
            disk_ratio=self._disk_ratio,
        )

    def _make_context(self, tables: MetadataTables, store: MessageStore, filters: ConsumerFilters) -> BrokerContext:
        """What the handlers and services of this broker share."""
        guard = MasterGuard(ticks_ms)
        ctx = BrokerContext(
            conf=self.conf,
            master_is_chosen=self.conf.failover.etcd is not None,
            guard=guard,
            store=store,
            tables=tables,
            clients=ClientTable(),
            locks=LockTable(),
            holds=HoldTable(),
            pending_sends=PendingSends(lambda: ctx.conf, monotonic_ms, guard),
            stats=self.stats,
            copy_budget=CopyBudget(),
            gate=self._make_gate(tables),
            auto_topics=AutoCreated(tables.topics),
            auto_groups=AutoCreated(tables.groups),
            fence=Fence(self._clock_ms),
            consumer_filters=filters,
            clock_ms=self._clock_ms,
            wall_ms=self._wall_ms,
            started_ms=self._clock_ms(),
            unique_ids=UniqueIds(self.conf.broker.record_host[0]),
        )
        return ctx

    def _make_gate(self, tables: MetadataTables) -> Gate | None:
        access, accounts = self.conf.access, tables.accounts
        if access.plain_acl:
            files = PlainFiles(plain_acl_home(access, self.conf.path or "broker.conf"))
            return PlainGate(files.rules, files.edition, self.conf.broker.cluster_name)
        if not access.authentication:
            return None
        if not accounts.rows:
            log.warning("nobody can use this broker: it has no account; set initAuthenticationUser")
        return AccountGate(access, self.conf.broker.cluster_name, lambda: accounts.rows, lambda: accounts.edition)


def signer(account: str | None) -> Callable[[Command], None] | None:
    """Signs requests to other servers; None without an account."""
    return None if account is None else partial(sign, credentials=Credentials(*parse_account(account)))
