"""Outgoing connections, one per address, opened on demand and replaced when lost."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace

from twinlog.net.connecting import connecting_to, target_of
from twinlog.net.connection import Connection, ConnectionOptions, Handler
from twinlog.net.errors import ConnectFailed
from twinlog.wire.command import Command

_RETIRED_S = 30.0  # in which requests on a replaced connection may still be answered


class ConnectionPool:
    """At most one live connection per address; concurrent callers share the attempt to open it."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout_ms: int = 3000,
        before_request: Callable[[Command], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self._options = ConnectionOptions(
            handlers={} if handlers is None else handlers, before_request=before_request, on_close=on_close
        )
        self._tls = tls
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._retired: list[Connection] = []

    def current(self, address: str) -> Connection | None:
        """The open connection to `address`, if there is one."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    async def get(self, address: str) -> Connection:
        """A live connection to `address` ("host:port"); ConnectFailed when it cannot be opened."""
        connection = self.current(address)
        if connection is not None:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(address))
            self._opening[address] = opening
            opening.add_done_callback(lambda done: self._opened(address, done))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not opening.cancelled() or (task is not None and task.cancelling()):
                raise
            raise ConnectFailed(address, "the pool is closing") from None

    async def request(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        timeout_ms: int = 3000,
    ) -> Command:
        """One question to `address` and its answer, whatever its code."""
        connection = await self.get(address)
        return await connection.request(code, fields, body, timeout_ms)

    async def oneway(
        self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        (await self.get(address)).oneway(code, fields, body)

    def live(self) -> dict[str, Connection]:
        """The connections that are open now, by address."""
        return {address: found for address, found in self._connections.items() if not found.closed}

    def address_of(self, connection: Connection) -> str | None:
        """The address that `connection` was opened for; None once another has taken its place."""
        return next((address for address, one in self._connections.items() if one is connection), None)

    def drop(self, address: str) -> None:
        """Close the connection to `address`, if there is one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close("no longer needed")

    def renew(self, address: str) -> None:
        """Open a new connection for the next request. Requests on the old one, which may be dead, still get answers."""
        connection = self._connections.pop(address, None)
        if connection is not None and not connection.closed:
            self._retired = [one for one in self._retired if not one.closed]
            self._retired.append(connection)
            asyncio.get_running_loop().call_later(_RETIRED_S, connection.close, "replaced by a new connection")

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
        for connection in (*self._connections.values(), *self._retired):
            connection.close("the pool is closing")
        self._connections.clear()
        self._retired.clear()

    def _opened(self, address: str, opening: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not opening.cancelled():
            opening.exception()  # all callers may have gone, and asyncio logs errors that nobody read

    async def _open(self, address: str) -> Connection:
        connection = await connect(address, replace(self._options), tls=self._tls, timeout_ms=self._connect_timeout_ms)
        self._connections[address] = connection
        return connection


async def connect(
    address: str, options: ConnectionOptions, *, tls: ssl.SSLContext | None = None, timeout_ms: int = 3000
) -> Connection:
    """Open one connection to `address`."""
    target = target_of(address)
    with connecting_to(address):
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(options, asks=True), target.host, target.port, ssl=tls
                )
        except TimeoutError:
            raise ConnectFailed(address, f"no answer within {timeout_ms} ms") from None
    return connection
