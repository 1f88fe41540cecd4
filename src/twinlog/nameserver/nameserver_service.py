"""A running name server: its port, the check for silent brokers, and notices to brokers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twinlog.base.clock import SteadyClock, wall_clock_ms
from twinlog.nameserver.accounts import NameServerAccounts
from twinlog.nameserver.broker_handlers import remove_brokers
from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.handlers import handlers
from twinlog.nameserver.kv_config import KvConfig
from twinlog.nameserver.registration import MinBrokerIdNotice
from twinlog.net.access import audited, open_audit_log, protected
from twinlog.net.admission import LOCAL_PLACES, Admission
from twinlog.net.connection import Connection, Handler, Request
from twinlog.net.errors import NetError
from twinlog.net.inbound import Inbound
from twinlog.net.local_admin import warn_if_open
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.net.tls import ServerTls, client_context
from twinlog.settings.nameserver_conf import NameServerConf
from twinlog.telemetry.fence import Fence
from twinlog.telemetry.log import get_logger, lines_left_out
from twinlog.telemetry.metrics import Metrics
from twinlog.wire.codes import RequestCode

log = get_logger(__name__)


class NameServerService:
    """Listens until cancelled; removes brokers that disconnect or fall silent."""

    def __init__(
        self,
        conf: NameServerConf,
        *,
        metrics: Metrics | None = None,
        clock_ms: Callable[[], int] | None = None,
        on_ready: Callable[[NameServerService], None] | None = None,
    ) -> None:
        self._conf = conf
        # Steady: with a wall clock that is set forward, every broker would be silent at once.
        clock_ms = self._clock_ms = SteadyClock() if clock_ms is None else clock_ms
        self._on_ready = on_ready
        self.fence = Fence(clock_ms)
        self._notices: asyncio.Queue[MinBrokerIdNotice] = asyncio.Queue()
        kv = KvConfig(conf.nameserver.kv_path)
        # One thread: large registrations are read one after the other, which saves memory.
        self._reader = ThreadPoolExecutor(1, "registrations")
        self.context = NameServerContext(conf, kv, clock_ms, self._notices.put_nowait)
        self.accounts = NameServerAccounts(conf) if conf.access.authentication else None
        self._metrics = metrics
        self._tls = ServerTls(conf.net.tls)
        self.server: Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before that."""
        return self.server.port if self.server is not None else 0

    def answer_page(self, path: str, query: str) -> tuple[int, bytes] | None:
        """(status, body) of a GET on the metrics port: /health while the process runs, /readiness while it listens."""
        if path not in ("/health", "/readiness"):
            return None
        is_ready = self.server is not None
        body = b'{"state":"%s"}\n' % (b"running" if is_ready else b"starting")
        return 200 if is_ready or path == "/health" else 503, body

    async def run(self) -> None:
        settings, net = self._conf.nameserver, self._conf.net
        limits = self.context.limits
        inbound = Inbound.configured(net, limits)
        admission = Admission(net.connections_max, net.address_connections_max, limits, local_places=LOCAL_PLACES)
        if self._metrics is not None:
            inbound.watch(self._metrics, "twinlog_namesrv")
        by_code = handlers(self.context, self._run_beside)
        if self.accounts is not None:
            by_code = protected({**by_code, **self.accounts.handlers()}, self.accounts.gate)
        else:
            by_code = self.context.local_admin.around(by_code)
            warn_if_open(settings.bind_address, net.admin_from, "register brokers, and so direct clients to them")
        audit = open_audit_log(self._conf.access, os.path.dirname(settings.kv_path) or ".", wall_clock_ms)
        by_code = self._counted(audited(by_code, audit, self.accounts.gate if self.accounts is not None else None))
        server = Server.configured(net, self._tls, by_code, inbound, admission, on_close=self._connection_closed)
        await server.start(settings.bind_address, settings.listen_port)
        self.server = server
        try:
            if self._on_ready is not None:
                self._on_ready(self)
            async with asyncio.TaskGroup() as tasks:
                for name, work in (("SilentBrokers", self._scan_for_silent_brokers), ("Notices", self._send_notices)):
                    tasks.create_task(self.fence.run(name, work), name=name)
        finally:
            await server.stop()
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _run_beside(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def _scan_for_silent_brokers(self) -> None:
        while True:
            await asyncio.sleep(self.context.settings.scan_interval_ms / 1000)
            self.drop_silent_brokers()

    def drop_silent_brokers(self) -> None:
        silent = self.context.table.silent(self._clock_ms())
        if silent:
            remove_brokers(self.context, [identity for identity, _ in silent], "it was silent for too long")
        for _, connection in silent:
            if isinstance(connection, Connection):
                connection.close("the broker was silent for too long")

    def _connection_closed(self, connection: Connection) -> None:
        if leaving := self.context.table.registered_over(connection):
            remove_brokers(self.context, leaving, "its connection closed")

    async def _send_notices(self) -> None:
        net = self._conf.net
        pool = ConnectionPool(tls=client_context(net.tls), connect_timeout_ms=net.connect_timeout_ms)
        try:
            while True:
                notice = await self._notices.get()
                for address in notice.receivers:
                    with contextlib.suppress(NetError):  # a broker that cannot be reached learns it by asking
                        await pool.oneway(address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice_fields(notice))
        finally:
            await pool.close()

    def _counted(self, by_code: dict[int, Handler]) -> dict[int, Handler]:
        """The same handlers; with metrics, each counts its requests."""
        metrics = self._metrics
        if metrics is None:
            return by_code
        table = self.context.table
        metrics.watch("twinlog_namesrv_brokers", "Brokers that are registered", lambda: len(table.live))
        metrics.watch("twinlog_namesrv_topics", "Topics with a route", lambda: len(table.topics))
        metrics.watch(
            "twinlog_namesrv_connections",
            "Open connections",
            lambda: len(self.server.connections) if self.server is not None else 0,
        )
        metrics.watch(
            "twinlog_namesrv_log_lines_left_out",
            "Log lines that repeated themselves and were not written",
            lines_left_out,
            kind="counter",
        )
        self.context.limits.watch(metrics, "twinlog_namesrv_refused")
        self.fence.watch(metrics, "twinlog_namesrv")
        requests = metrics.family("twinlog_namesrv_requests", "Requests by kind", ["request"])

        def counted(code: int, handler: Handler) -> Handler:
            number = requests.labels(RequestCode(code).name)

            def answer(request: Request):
                number.add()
                return handler(request)

            return answer

        return {code: counted(code, handler) for code, handler in by_code.items()}


def notice_fields(notice: MinBrokerIdNotice) -> dict[str, str]:
    fields = {
        "minBrokerId": str(notice.min_broker_id),
        "minBrokerAddr": notice.min_broker_addr,
        "offlineBrokerAddr": notice.offline_broker_addr,
        "haBrokerAddr": notice.ha_broker_addr,
    }
    return {name: value for name, value in fields.items() if value is not None}
