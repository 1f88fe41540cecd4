"""One broker, put together: an open store, the tables, two ports, and the services around them.

Start: settings, metadata, recovery, services, ports, registration, in this order. A port opens only when
recovery is over, and name servers hear of the broker only when its ports are open. The end is the reverse.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from twinlog.base.clock import SteadyClock, ticks_ns, wall_clock_ms
from twinlog.broker.admin import config_handlers, group_handlers, operation_handlers, reset_handlers, topic_handlers
from twinlog.broker.clients import client_handlers, connection_handlers, lock_handlers, offset_handlers
from twinlog.broker.clients.client_table import ClientTable
from twinlog.broker.clients.locks import QueueLocks
from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.naming.register_service import RegisterService
from twinlog.broker.pulls import pull, query_handlers
from twinlog.broker.pulls.filters.bitmap_dispatcher import BitmapDispatcher
from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.broker.pulls.hold import HoldTable
from twinlog.broker.pulls.hold_service import HoldService
from twinlog.broker.replication import metadata_handlers, replication_handlers
from twinlog.broker.replication.replication_metrics import watch_replication
from twinlog.broker.replication.role_service import ReplicationService
from twinlog.broker.sends import reply, send, send_back
from twinlog.broker.sends.copy_budget import CopyBudget
from twinlog.broker.sends.pending_sends import PendingSends
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.stats import runtime_info, stats_handlers
from twinlog.broker.stats.broker_metrics import watch_broker
from twinlog.broker.stats.rocketmq_metrics import watch_messages
from twinlog.broker.stats.stats import BrokerStats
from twinlog.broker.stats.stats_service import StatsService
from twinlog.broker.task_errors import single_error
from twinlog.broker.topics.auto_created import AutoCreated
from twinlog.broker.topics.topic_creation import seed_tables
from twinlog.broker.upkeep.flush_service import FlushService, QueueFlushService
from twinlog.broker.upkeep.maintenance_service import MaintenanceService, save_service
from twinlog.metadata.errors import NotSaved
from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.net.inbound import Inbound
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.net.tls import ServerTls, client_context
from twinlog.replication.replica.replica_service import monotonic_ms
from twinlog.store.errors import RecoveryStopped, StoreUnusable, system_errors_as
from twinlog.store.message_store import MessageStore
from twinlog.store.plugins import open_store
from twinlog.telemetry.fence import Fence
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode
from twinlog.wire.message_id import UniqueIds
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.net.connection import Connection, Handler
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.telemetry.metrics import Metrics

log = get_logger(__name__)
VIP_PORT_BELOW = 2  # the second port is listenPort - 2
NOT_ON_VIP_PORT = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.POP_MESSAGE}
)
REGISTRATION_S_MAX = 3.0  # a name server that does not answer does not keep the broker from being ready
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
    connection_handlers,
    stats_handlers,
    reset_handlers,
    operation_handlers,
)


class Service(Protocol):
    async def run(self) -> None: ...


class Broker:
    """One broker: an open store and the services around it."""

    def __init__(
        self,
        conf: BrokerConf,
        *,
        wall_ms: Callable[[], int] = wall_clock_ms,
        ticks_ns: Callable[[], int] = ticks_ns,
        metrics: Metrics | None = None,
        on_ready: Callable[[Broker], None] | None = None,
    ) -> None:
        self.conf = with_port(conf)
        self._metrics = metrics
        self.context: BrokerContext | None = None
        self.servers: list[Server] = []
        self.replication: ReplicationService | None = None
        self._wall_ms = wall_ms
        self._clock_ms = SteadyClock(wall_ms, ticks_ns)
        self.stats = BrokerStats(self._clock_ms(), self.conf.broker.cluster_name)
        self._on_ready = on_ready

    @property
    def address(self) -> str:
        """Where clients reach this broker."""
        return self.conf.broker.address

    async def run(self) -> None:
        """Serve until cancelled. Recovery ends before any port opens; the store closes last."""
        started = time.perf_counter()
        tables = self._load_tables()
        filters = ConsumerFilters(tables.filters, self._bloom(), self._clock_ms())
        with await self._opened(tables, filters) as store, _saved_at_end(tables):
            ctx = self.context = self._context(tables, store, filters)
            deferred = DeferredServices(ctx)
            if self._metrics is not None:
                watch_broker(self._metrics, ctx, self.servers)
                watch_messages(self._metrics, ctx, deferred.timers, deferred.transactions)
            from_masters: dict[int, Handler] = {}
            net = self.conf.net
            tls = client_context(net.tls)
            pool = ConnectionPool(from_masters, tls=tls, connect_timeout_ms=net.connect_timeout_ms)
            register = RegisterService(ctx, pool)
            replication = self.replication = ReplicationService(ctx, pool, register, deferred.synchronised)
            if self._metrics is not None:
                watch_replication(self._metrics, ctx, replication)
            from_masters[TwinlogCode.METADATA_CHANGED] = lambda request: replication.sync.wake()
            services: list[Service] = [*self._services(ctx), *deferred, replication]
            fenced: list[Service] = [StatsService(ctx, ctx.stats), register]
            try:
                with single_error():
                    await self._serve(ctx, deferred, services, fenced, register, started)
            finally:
                ctx.table_work.close()
                await pool.close()

    async def _serve(
        self,
        ctx: BrokerContext,
        deferred: DeferredServices,
        services: list[Service],
        fenced: list[Service],
        register: RegisterService,
        started: float,
    ) -> None:
        async with asyncio.TaskGroup() as tasks, self._servers(ctx, deferred):
            for service in services:
                tasks.create_task(service.run(), name=type(service).__name__)
            for service in fenced:
                name = type(service).__name__
                tasks.create_task(ctx.fence.run(name, service.run), name=name)
            assert self.replication is not None
            await self.replication.check_identity()
            await self._announce(ctx, register)
            log.info("ready", address=self.address, seconds=round(time.perf_counter() - started, 3))
            if self._on_ready is not None:
                self._on_ready(self)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await ctx.fence.attempt(type(register).__name__, register.unregister)

    # -- parts ---------------------------------------------------------------------------------

    def _load_tables(self) -> MetadataTables:
        settings = self.conf.broker
        root = self.conf.store.root_dir
        tables = open_tables(
            os.path.join(root, "config"),
            self._clock_ms(),
            offset_version_step=settings.offset_version_step,
            delay_version_step=settings.delay_offset_version_step,
            modes=self.conf.store.modes,
        )
        seed_tables(tables.topics, tables.groups, settings, self.conf.store)
        with system_errors_as(StoreUnusable, Path(root)):
            for problem in tables.load():
                log.warning(problem)
        tables.offsets.follows_master = settings.is_replica
        return tables

    async def _opened(self, tables: MetadataTables, filters: ConsumerFilters) -> MessageStore:
        """The open store. Recovery may take minutes, in a thread, so that a signal can end it."""
        stopping = threading.Event()
        opening = asyncio.ensure_future(asyncio.to_thread(self._open_store, tables, filters, stopping.is_set))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            stopping.set()
            with contextlib.suppress(RecoveryStopped):
                (await opening).close()
            raise

    def _open_store(
        self, tables: MetadataTables, filters: ConsumerFilters, stopped: Callable[[], bool] = lambda: False
    ) -> MessageStore:
        def topic_kind(topic: str) -> str:
            config = tables.topics.get(topic)
            return config.attributes.get("queue.type", "SimpleCQ") if config is not None else "SimpleCQ"

        settings = self.conf.broker
        early = [BitmapDispatcher(filters)] if settings.filter_bitmap else []
        store: MessageStore = open_store(
            self.conf.store,
            role=settings.broker_role,
            store_host=(settings.broker_ip1, settings.listen_port),
            clock_ms=self._wall_ms,
            topic_kind=topic_kind,
            early_dispatchers=early,
            stopped=stopped,
            conf=lambda: self.conf if self.context is None else self.context.conf,
            stats=self.stats,
        )
        log.info("store open", directory=self.conf.store.root_dir, log_start=store.log_start, log_end=store.log_end)
        return store

    def _context(self, tables: MetadataTables, store: MessageStore, filters: ConsumerFilters) -> BrokerContext:
        ctx = BrokerContext(
            conf=self.conf,
            store=store,
            tables=tables,
            clients=ClientTable(),
            locks=QueueLocks(),
            holds=HoldTable(),
            pending_sends=PendingSends(lambda: ctx.conf, monotonic_ms),
            stats=self.stats,
            copy_budget=CopyBudget(),
            auto_topics=AutoCreated(tables.topics),
            auto_groups=AutoCreated(tables.groups),
            fence=Fence(self._clock_ms),
            consumer_filters=filters,
            clock_ms=self._clock_ms,
            wall_ms=self._wall_ms,
            started_ms=self._clock_ms(),
            unique_ids=UniqueIds(_address_or_loopback(self.conf.broker.broker_ip1)),
        )
        return ctx

    def _handlers(self, ctx: BrokerContext) -> dict[int, Handler]:
        merged: dict[int, Handler] = {}
        for module in HANDLERS:
            merged.update(module.handlers(ctx))
        return merged

    def _services(self, ctx: BrokerContext) -> Iterator[Service]:
        yield HoldService(ctx, pull.PullHandler(ctx))
        yield FlushService(ctx)
        yield QueueFlushService(ctx)
        yield save_service(ctx)
        yield MaintenanceService(ctx)

    @contextlib.asynccontextmanager
    async def _servers(self, ctx: BrokerContext, deferred: DeferredServices):
        """Both ports; the second one answers everything but pulls."""
        settings, net = ctx.settings, self.conf.net
        tls = ServerTls(net.tls)
        replication = self.replication
        assert replication is not None
        inbound = Inbound(net.unfinished_bytes_max, net.progress_seconds_max, ctx.limits)
        if self._metrics is not None:
            inbound.watch(self._metrics, "twinlog_broker")
        handlers = {
            **self._handlers(ctx),
            **deferred.handlers(),
            **metadata_handlers.handlers(ctx, deferred.timers_in_use),
            **runtime_info.handlers(ctx, deferred.timers),
            **replication_handlers.handlers(ctx, replication),
        }

        def closed(connection: Connection) -> None:
            ctx.holds.drop(connection)
            client_handlers.connection_closed(ctx, connection)

        async with contextlib.AsyncExitStack() as stack:
            replication.listen()
            for port in (settings.listen_port, settings.listen_port - VIP_PORT_BELOW):
                server = Server(
                    handlers,
                    tls=tls.context,
                    tls_enforced=tls.enforced,
                    idle_ms_max=net.idle_seconds_max * 1000,
                    inbound=inbound,
                    backlog=net.backlog,
                    send_buffer_bytes=net.send_buffer_bytes,
                    receive_buffer_bytes=net.receive_buffer_bytes,
                    after_batch=ctx.publish_appends,
                    fast=FastSend(ctx).take,
                    on_close=closed,
                )
                await server.start(settings.bind_address, port)
                stack.push_async_callback(server.stop)
                self.servers.append(server)
                handlers = {code: handler for code, handler in handlers.items() if code not in NOT_ON_VIP_PORT}
            yield

    async def _announce(self, ctx: BrokerContext, register: RegisterService) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTRATION_S_MAX):
                await ctx.fence.attempt(type(register).__name__, register.register_first)

    def _bloom(self) -> BloomFilter:
        settings = self.conf.broker
        return BloomFilter(settings.filter_error_percent, settings.filter_groups_expected)


@contextlib.contextmanager
def _saved_at_end(tables: MetadataTables) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            tables.save()
        except OSError as error:
            raise NotSaved(error) from error


def with_port(conf: BrokerConf) -> BrokerConf:
    """`conf` with a real port: 0 stands for any port that is free together with its neighbours."""
    if conf.broker.listen_port:
        return conf
    port = free_port(conf.broker.bind_address)
    broker = dataclasses.replace(conf.broker, listen_port=port)
    replication = conf.replication
    if not replication.listen_port:
        replication = dataclasses.replace(replication, listen_port=port + 1)
    return dataclasses.replace(conf, broker=broker, replication=replication)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, like port - 2 and port + 1."""
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind((host, 0))
            port = first.getsockname()[1]
            try:
                for other in (port - VIP_PORT_BELOW, port + 1):
                    stack.enter_context(socket.socket()).bind((host, other))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError(f"no three neighbouring ports are free on {host}")


def _address_or_loopback(host: str) -> str:
    """`host` if it is an address; a name is nothing an id could hold."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return host
    return "127.0.0.1"
