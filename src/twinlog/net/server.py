"""A listening port: accepts, reads the first bytes, and hands each socket to a Connection.

The first bytes decide: a PROXY protocol line or block names the true peer and is taken off; 0x16
starts a TLS handshake; anything else is clear text.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinlog.base.address_list import address_list, plain_host
from twinlog.base.addresses import address_text
from twinlog.net.admission import Admission
from twinlog.net.connection import Connection, ConnectionOptions, FastPath, Handler
from twinlog.net.errors import CannotListen
from twinlog.net.inbound import Inbound
from twinlog.net.proxy_protocol import PREAMBLE_BYTES_MAX, ProxyError, take_preamble
from twinlog.telemetry.log import get_logger
from twinlog.wire.frame import JSON

if TYPE_CHECKING:
    from twinlog.net.tls import ServerTls
    from twinlog.settings.net import NetSettings

log = get_logger(__name__)
_TLS_HANDSHAKE = 0x16
_UNREAD_BYTES_MAX = 64 * 1024 * 1024  # some answers of the largest size; pulls that were held may all come at once
_PREAMBLE_S_MAX = 5.0
_ACCEPT_AGAIN_S = 0.1


class Server:
    """Serves `handlers` on one port until stopped."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        tls: ssl.SSLContext | None = None,
        tls_enforced: bool = False,
        idle_ms_max: int = 120_000,
        inbound: Inbound | None = None,
        admission: Admission | None = None,
        proxies: str = "",
        backlog: int = 1024,
        send_buffer_bytes: int = 0,
        receive_buffer_bytes: int = 0,
        header_type: int = JSON,
        after_batch: Callable[[], object] | None = None,
        fast: FastPath | None = None,
        on_connect: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.inbound = inbound or Inbound()
        self._options = ConnectionOptions(
            handlers=handlers,
            inbound=self.inbound,
            header_type=header_type,
            after_batch=after_batch,
            fast=fast,
            unread_bytes_max=_UNREAD_BYTES_MAX,
            on_connect=self._connected,
            on_close=self._closed,
        )
        self._tls, self._tls_enforced = tls, tls_enforced
        self._idle_ms_max = idle_ms_max
        self._admission = admission or Admission()
        self._proxies = address_list(proxies)
        self._backlog = backlog
        # 0 leaves the size to the system, which usually chooses better.
        self._buffers = {socket.SO_SNDBUF: send_buffer_bytes, socket.SO_RCVBUF: receive_buffer_bytes}
        self._on_connect, self._on_close = on_connect, on_close
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.connections: set[Connection] = set()
        self.port = 0

    @classmethod
    def configured(
        cls,
        settings: NetSettings,
        tls: ServerTls,
        handlers: Mapping[int, Handler],
        inbound: Inbound,
        admission: Admission,
        *,
        after_batch: Callable[[], object] | None = None,
        fast: FastPath | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> Server:
        """A server with the limits, buffers and TLS that an operator has set."""
        return cls(
            handlers,
            tls=tls.context,
            tls_enforced=tls.enforced,
            idle_ms_max=settings.idle_seconds_max * 1000,
            inbound=inbound,
            admission=admission,
            proxies=settings.proxies,
            backlog=settings.backlog,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            after_batch=after_batch,
            fast=fast,
            on_close=on_close,
        )

    async def start(self, host: str, port: int) -> None:
        """Listen; `port` 0 takes a free one, which `port` then names."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in self._buffers.items():
            if size:
                listener.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
        try:
            listener.bind((host, port))
            listener.listen(self._backlog)
        except OSError as error:
            listener.close()
            raise CannotListen(host, port, error) from error
        listener.setblocking(False)
        self._listener, self.port = listener, listener.getsockname()[1]
        self._own(self._accept(listener))
        self._own(self._close_idle())
        self._own(self._close_late())

    async def stop(self) -> None:
        """Stop listening and close every connection after what is already written."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close("the server is stopping")
        try:
            async with asyncio.timeout(1):
                await self._empty.wait()
        except TimeoutError:  # a peer that does not read its last answers
            for connection in list(self.connections):
                connection.abort()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop, refused = asyncio.get_running_loop(), 0
        while True:
            await asyncio.sleep(0)  # asyncio's own loop would accept all that wait before it serves anybody
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors, or the peer gave up: others must still get in
                if not refused:
                    hint = "; allow more with `ulimit -n`" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
                    log.warning("connections cannot be accepted", port=self.port, error=f"{error}{hint}")
                refused += 1
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if refused:
                log.info("connections are accepted again", port=self.port, attempts=refused)
                refused = 0
            host = plain_host(address[0])
            leave = self._admission.enter(host, is_proxy=host in self._proxies)
            if leave is None:
                accepted.close()
                continue
            self._own(self._admit(accepted, (host, address[1]), leave))

    async def _admit(self, accepted: socket.socket, address: tuple[str, int], leave: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(self._idle_ms_max / 1000):
                first, peer = await self._peek(accepted, address[0])
                await self.inbound.turns.mine()
            tls = self._tls_for(first)
            connection = Connection(replace(self._options), peer=peer or address)
            connection.on_close.append(lambda _: leave())
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls)
        except (TimeoutError, ConnectionError, ProxyError, OSError, ssl.SSLError) as error:
            accepted.close()
            leave()
            log.info("a connection was not admitted", peer=address_text(*address), error=str(error))
        except asyncio.CancelledError:
            accepted.close()
            leave()
            raise

    async def _peek(self, accepted: socket.socket, host: str) -> tuple[int, tuple[str, int] | None]:
        """(first byte of the real traffic, peer named by the PROXY preamble of a known proxy)."""
        peer, patience_s, has_preamble = None, 0.005, False
        while True:
            await _readable(accepted)
            start = accepted.recv(PREAMBLE_BYTES_MAX, socket.MSG_PEEK)
            if not start:
                raise ConnectionError("closed before it sent anything")
            preamble = take_preamble(start)
            if preamble is None:
                # A preamble has begun and its rest will arrive. Its beginning stays readable, so there is no event.
                if patience_s > _PREAMBLE_S_MAX:
                    raise ProxyError(f"no whole PROXY preamble within {_PREAMBLE_S_MAX:.0f} s")
                await asyncio.sleep(patience_s)
                patience_s *= 2
                continue
            if preamble.size == 0:
                return start[0], peer
            if host not in self._proxies:  # Java: anybody may say that it is somebody else
                raise ProxyError("a PROXY line from an address that is not a proxy; name it in proxyProtocolFrom")
            if has_preamble:  # the proxy wrote the first one; this one is from the client behind it
                raise ProxyError("a second PROXY line")
            accepted.recv(preamble.size)
            peer, has_preamble = preamble.peer, True

    def _tls_for(self, first: int) -> ssl.SSLContext | None:
        if first == _TLS_HANDSHAKE:
            if self._tls is None:
                raise ConnectionError("TLS was asked for, and tls.server.mode is disabled here")
            return self._tls
        if self._tls_enforced:
            raise ConnectionError("clear text was sent, and tls.server.mode is enforcing here")
        return None

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._idle_ms_max / 1000
        while True:
            await asyncio.sleep(min(10.0, seconds / 2))
            for connection in list(self.connections):
                if loop.time() - connection.last_active <= seconds:
                    continue
                if connection.closing:  # since the last round: its peer does not even read what is left
                    connection.abort()
                else:
                    connection.close(f"idle for {seconds:.0f} s")

    async def _close_late(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(5.0, self.inbound.progress_s_max / 4))
            self.inbound.drop_late(loop.time())

    def _connected(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._empty.clear()
        if self._on_connect is not None:
            self._on_connect(connection)

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()
        if self._on_close is not None:
            self._on_close(connection)


async def _readable(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    number = accepted.fileno()
    loop.add_reader(number, lambda: ready.done() or ready.set_result(None))
    try:
        with contextlib.suppress(asyncio.InvalidStateError):
            await ready
    finally:
        loop.remove_reader(number)
