"""The HA port of a master: accepts replicas, and keeps a connection for each of them."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from functools import partial

from twinlog.base.addresses import address_text
from twinlog.net.connection import Connection
from twinlog.net.errors import CannotListen
from twinlog.net.tls import ServerTls
from twinlog.net.tls_sockets import TLS_HANDSHAKE, first_byte, secure
from twinlog.replication.errors import ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master.passes import Passes
from twinlog.replication.master.peer_rules import peer_refusal
from twinlog.replication.master.replica_acks import ReplicaAcks
from twinlog.replication.master.replica_connection import ReplicaConnection, ReplicaView
from twinlog.replication.secret import is_proven
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.log.commit_log import CommitLog
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
CONNECTIONS_KEY = "maxReplicaConnections"
_TICK_SECONDS = 0.5
_ACCEPT_AGAIN_S = 0.1
_ACCEPT_PAUSE_S = 0.001  # replicas are few: a storm of strangers waits in the system's queue, and delays no send


class MasterService:
    """Serves replicas until cancelled. `clock_ms` measures silences and heartbeats, so it should not jump."""

    def __init__(
        self,
        settings: Callable[[], ReplicationSettings],
        commit_log: CommitLog,
        *,
        bind_address: str,
        clock_ms: Callable[[], int],
        acks: ReplicaAcks | None = None,
        accepts: Callable[[], bool] = lambda: True,
        has_accounts: bool = False,
        tls: ServerTls | None = None,
        on_join: Callable[[], None] = lambda: None,
        on_acks: Callable[[], None] = lambda: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._bind_address = bind_address
        self._clock_ms = clock_ms
        self._accepts = accepts
        self._has_accounts = has_accounts
        self._tls = tls
        self._greeting: dict[asyncio.Task[None], None] = {}  # connections without a first byte, the oldest first
        self._on_join = on_join
        self._on_acks = on_acks
        self._on_tick = on_tick
        self._connections: dict[int, ReplicaConnection] = {}
        self._numbers = itertools.count(1)
        self._listener: socket.socket | None = None
        self.acks = acks if acks is not None else ReplicaAcks()
        self.passes = Passes()
        self.refused = 0
        self.port = 0

    def listen(self) -> None:
        """Open the HA port; apart from `run`, so that a broker is reachable before it registers."""
        port = self._settings().listen_port
        listener = socket.socket(socket.AF_INET6 if ":" in self._bind_address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._bind_address, port))
        except OSError as error:
            listener.close()
            raise CannotListen(self._bind_address, port, error, "haListenPort") from error
        listener.listen(128)
        listener.setblocking(False)
        self._listener, self.port = listener, listener.getsockname()[1]

    async def run(self) -> None:
        if self._listener is None:
            self.listen()
        assert self._listener is not None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tick(), name="ha-tick")
                tasks.create_task(self._accept(self._listener), name="ha-accept")
        finally:
            self._listener.close()
            self._listener = None
            for task in list(self._greeting):
                task.cancel()
            self.drop_all("the master is stopping")

    async def _accept(self, listener: socket.socket) -> None:
        loop, failed = asyncio.get_running_loop(), False
        while True:
            await asyncio.sleep(_ACCEPT_PAUSE_S)
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors, or the peer gave up: go on accepting
                if not failed:
                    log.warning("replicas cannot be accepted; trying again", port=self.port, error=str(error))
                failed = True
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            failed = False
            host, peer = address[0], address_text(*address[:2])
            if self._tls is not None:
                self._greet_later(accepted, host, peer)
                continue
            try:
                self._admit(accepted, host, peer)
            except OSError as error:
                accepted.close()
                log.info("a replica has gone", peer=address_text(*address[:2]), reason=str(error))

    def _greet_later(self, accepted: socket.socket, host: str, peer: str) -> None:
        while len(self._greeting) >= self._settings().connections_max:  # whoever says nothing locks nobody out
            oldest = next(iter(self._greeting))
            del self._greeting[oldest]
            oldest.cancel()
            self.refused += 1
        task = asyncio.get_running_loop().create_task(self._greet(accepted, host, peer))
        self._greeting[task] = None
        task.add_done_callback(lambda done: self._greeting.pop(done, None))

    async def _greet(self, accepted: socket.socket, host: str, peer: str) -> None:
        """Take TLS, or clear text where it is allowed; the first byte shows which it is."""
        assert self._tls is not None and self._tls.context is not None
        accepted.setblocking(False)
        secured = accepted
        try:
            async with asyncio.timeout(self._settings().silence_ms_max / 1000):
                first = await first_byte(accepted)
                if first == TLS_HANDSHAKE:
                    secured = await secure(accepted, self._tls.context, server_side=True)
                elif self._settings().tls_required and first is not None:
                    raise ConnectionError("it sent clear text, and haTlsRequired is true here")
            self._admit(secured, host, peer)
        except OSError as error:  # TimeoutError and ssl.SSLError too
            secured.close()
            accepted.close()
            self.refused += 1
            log.warning("a replica was refused", peer=peer, reason=str(error) or type(error).__name__)
        except asyncio.CancelledError:
            secured.close()
            accepted.close()
            raise

    def issue_pass(self, hello: HelloHeader, broker_name: str, cluster_name: str, connection: Connection) -> int:
        """A pass for a Twinlog replica, valid while `connection` is open; JoinRefused names what does not fit."""
        secret = self._settings().shared_secret if is_proven(connection) else None
        number = self.passes.issue(hello, broker_name, cluster_name, self._clock_ms(), secret)
        connection.on_close.append(lambda _: self.passes.withdraw(number, secret))
        return number

    def wake(self) -> None:
        """The log has grown: send what is new. Called after each batch of appends."""
        if self._connections:
            for connection in list(self._connections.values()):
                connection.pump()

    def drop_all(self, reason: str) -> None:
        """Close every connection: the master stops, or becomes a replica. Passes that were issued end, too."""
        self.passes.forget_all()
        for connection in list(self._connections.values()):
            connection.close(reason)

    def views(self) -> list[ReplicaView]:
        return [connection.view() for connection in self._connections.values() if connection.is_admitted]

    def _refusal(self, host: str) -> str | None:
        """Why a peer without a pass gets nothing."""
        return peer_refusal(self._settings(), host, has_accounts=self._has_accounts)

    def _make_room(self) -> bool:
        """Whether one more may connect; a connection that has not said who it is makes room for it."""
        if len(self._connections) < self._settings().connections_max:
            return True
        unknown = next((one for one in self._connections.values() if not one.is_admitted), None)
        if unknown is not None:
            unknown.close(ReplicationError(f"{CONNECTIONS_KEY} is {self._settings().connections_max}"))
        return unknown is not None

    def _admit(self, accepted: socket.socket, host: str, peer: str) -> None:
        if not self._accepts():
            accepted.close()
            self.refused += 1
            log.warning("a replica was refused", peer=peer, reason="this broker is a replica itself; ask its master")
            return
        if not self._make_room():
            accepted.close()
            self.refused += 1
            limit = f"{CONNECTIONS_KEY} is {self._settings().connections_max}"
            log.warning("a replica was refused", peer=peer, reason=limit)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = next(self._numbers)
        self._connections[number] = ReplicaConnection(
            number,
            accepted,
            peer,
            settings=self._settings,
            commit_log=self._log,
            clock_ms=self._clock_ms,
            acks=self.acks,
            passes=self.passes,
            refusal=partial(self._refusal, host),
            on_join=self._on_join,
            on_acks=self._on_acks,
            on_close=self._closed,
        )

    def _closed(self, connection: ReplicaConnection, is_refused: bool) -> None:
        self._connections.pop(connection.number, None)
        self.refused += is_refused

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for connection in list(self._connections.values()):
                connection.tick()
            self._on_tick()
