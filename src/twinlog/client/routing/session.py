"""A running client's connections: name servers, cached routes, heartbeats.

Producers, consumers and admins each own one session. It keeps three promises: routes in use are
asked for again every 30 s and as soon as something at their end fails, every broker in them hears the
heartbeat every 30 s and again as soon as a connection was lost, and all of its tasks end with `close`.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping

from twinlog.base.addresses import AddressError, parse_address
from twinlog.client.errors import BadArgument, BrokerRefused, ClientClosed, ClientError, NoMaster, NoNameServer
from twinlog.client.options import ClientOptions
from twinlog.client.routing.route_cache import RouteCache
from twinlog.client.routing.routes import MASTER_ID, TopicRoute
from twinlog.client.sending.retry_plan import doubts_route
from twinlog.client.signing import sign
from twinlog.client.tasks import TaskSet, wait_for_event
from twinlog.net.connecting import below, connecting_to
from twinlog.net.connection import Connection, Handler
from twinlog.net.errors import ConnectFailed, NetError
from twinlog.net.pool import ConnectionPool
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import HeartbeatData, MessageQueue, TopicRouteData, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import UnregisterClientHeader

log = get_logger(__name__)
Failures = (NetError, ClientError, WireError)
_instances = itertools.count(1)
_NOT_ON_VIP_PORT = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_VIP_PORT_BELOW = 2
_LOST_HEARTBEAT_MS = 2_000


class Session:
    """Connections to one cluster, from `start` to `close`."""

    def __init__(
        self,
        name_servers: str,
        options: ClientOptions | None = None,
        *,
        handlers: Mapping[int, Handler] | None = None,
        heartbeat: Callable[[], HeartbeatData] | None = None,
        on_route_change: Callable[[str], None] | None = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.name_servers = parse_name_servers(name_servers)
        self.client_id = make_client_id(self.name_servers[0], self.options.instance_name)
        self._handlers = dict(handlers or {})
        self._heartbeat = heartbeat
        self._on_route_change = on_route_change
        self._pool: ConnectionPool | None = None
        self._tasks = TaskSet()
        self._routes = RouteCache(";".join(self.name_servers), self._fetch_route, self._route_changed, self._tasks)
        self._heartbeat_wanted = asyncio.Event()
        self._name_server_at = 0
        self._closing = False

    async def start(self) -> None:
        self._pool = ConnectionPool(
            self._handlers,
            tls=self.options.tls,
            connect_timeout_ms=self.options.connect_timeout_ms,
            before_request=self._prepare,
            on_close=self._lost,
        )
        self._closing = False
        self._tasks.keep(self._refresh_routes, "refresh routes")
        if self._heartbeat is not None:
            self._tasks.keep(self._beat, "heartbeat")

    async def close(self) -> None:
        self._closing = True
        await self._tasks.close()
        if self._pool is not None:
            await self._pool.close()
            await asyncio.sleep(0)  # lets the transports finish closing
            self._pool = None

    # -- asking --------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: int,
        header: object = None,
        body: bytes | None = None,
        *,
        timeout_ms: int | None = None,
        accept: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """The answer of the server at `address`; BrokerRefused unless its code is one of `accept`.

        A failure that a new master would explain has the routes to `address` asked for again.
        """
        timeout_ms = timeout_ms or self.options.request_timeout_ms
        try:
            connection = await self._connection(self._port(address, code), timeout_ms)
            answer = await connection.request(code, _fields(header), body, timeout_ms)
            if answer.code not in accept:
                raise BrokerRefused(code, answer.code, answer.remark, address)
        except (NetError, BrokerRefused) as error:
            if doubts_route(error):
                self._routes.doubt_address(address)
            raise
        return answer

    async def ask_broker(
        self,
        queue: MessageQueue,
        code: int,
        header: object = None,
        *,
        broker_id: int = MASTER_ID,
        timeout_ms: int | None = None,
        accept: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """The answer of the broker that holds `queue`, preferably the one with `broker_id`.

        When it fails as a broker does that is no longer the master, the name server is asked, and a broker that it
        names now is asked too. For requests that may arrive twice.
        """
        address = _address_in(await self.route(queue.topic), queue, broker_id)
        try:
            return await self.ask(address, code, header, timeout_ms=timeout_ms, accept=accept)
        except (NetError, BrokerRefused) as error:
            if not doubts_route(error):
                raise
            route = await self.renewed_route(queue.topic, self.options.request_timeout_ms)
            renewed = route.address_of(queue.broker_name)
            if renewed is None or renewed == address:
                raise
        return await self.ask(renewed, code, header, timeout_ms=timeout_ms, accept=accept)

    async def tell(self, address: str, code: int, header: object = None, body: bytes | None = None) -> None:
        """Send a request that is not answered."""
        try:
            await self._open_pool().oneway(self._port(address, code), code, _fields(header), body)
        except NetError:
            self._routes.doubt_address(address)
            raise

    async def ask_name_server(self, code: int, header: object = None, body: bytes | None = None) -> Command:
        """The answer of the first name server that can be reached; the list is walked from the last good one."""
        last: Exception | None = None
        for step in range(len(self.name_servers)):
            at = (self._name_server_at + step) % len(self.name_servers)
            try:
                answer = await self._open_pool().request(
                    self.name_servers[at], code, _fields(header), body, self.options.request_timeout_ms
                )
            except NetError as error:
                last = error
                continue
            self._name_server_at = at
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerRefused(code, answer.code, answer.remark, self.name_servers[at])
            return answer
        raise NoNameServer(";".join(self.name_servers), last)

    async def _connection(self, address: str, timeout_ms: int) -> Connection:
        """A connection, opened within the caller's time and not only within the pool's."""
        pool = self._open_pool()
        if (connection := pool.current(address)) is not None:
            return connection
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await pool.get(address)
        except TimeoutError:
            raise ConnectFailed(address, f"no connection within {timeout_ms} ms") from None

    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            raise ClientClosed("the client")
        return self._pool

    def _port(self, address: str, code: int) -> str:
        if not self.options.vip_channel or code in _NOT_ON_VIP_PORT or address in self.name_servers:
            return address
        return below(address, _VIP_PORT_BELOW)

    def _prepare(self, command: Command) -> None:
        command.language = "PYTHON"
        if self.options.credentials is not None:
            sign(command, self.options.credentials)

    # -- routes --------------------------------------------------------------------------------

    async def route(self, topic: str, *, create_queues: int = 0) -> TopicRoute:
        """The topic's route, cached. With `create_queues` an unknown topic borrows that of TBW102."""
        return await self._routes.get(topic, create_queues)

    def known_route(self, topic: str) -> TopicRoute | None:
        return self._routes.known(topic)

    def doubt(self, topic: str) -> None:
        """Have the route of `topic` asked for again soon: something at its end did not answer."""
        self._routes.doubt(topic)

    async def renewed_route(self, topic: str, timeout_ms: int) -> TopicRoute:
        """The route after the name server was asked again; the last one known when that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._routes.renew(topic)
        return self._routes.known(topic) or await self._routes.get(topic)

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        return decode_body(TopicRouteData, answer.body)

    def _route_changed(self, topic: str, new_addresses: bool, first: bool) -> None:
        if new_addresses:
            self._heartbeat_wanted.set()
        if not first and self._on_route_change is not None:
            self._on_route_change(topic)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.options.route_refresh_ms / 1000)
            await self._routes.refresh_all()

    # -- heartbeats ----------------------------------------------------------------------------

    async def send_heartbeats(self, addresses: Iterable[str] | None = None) -> list[Exception]:
        """Tell the brokers in use that this client is alive; why some of them could not be told."""
        if self._heartbeat is None:
            return []
        told = sorted(self._addresses() if addresses is None else addresses)
        if not told:
            return []
        body = encode_body(self._heartbeat())
        results = await asyncio.gather(
            *(self.ask(address, RequestCode.HEART_BEAT, {}, body) for address in told), return_exceptions=True
        )
        lost: list[Exception] = []
        for address, result in zip(told, results, strict=True):
            if isinstance(result, Failures):
                log.warning("a heartbeat was not taken", broker=address, error=str(result))
                lost.append(result)
            elif isinstance(result, BaseException):
                raise result
        return lost

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell all brokers that a group's member leaves, so that the others take over at once."""
        header = UnregisterClientHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        live = self._pool.live() if self._pool is not None else {}
        code = RequestCode.UNREGISTER_CLIENT
        asked = [self.ask(a, code, header) for a in self._addresses() if self._port(a, code) in live]
        await asyncio.gather(*asked, return_exceptions=True)  # a broker that is gone need not be told

    def _addresses(self) -> set[str]:
        return self._routes.addresses()

    async def _beat(self) -> None:
        pause_ms = self.options.heartbeat_ms
        while True:
            await wait_for_event(self._heartbeat_wanted, pause_ms)
            lost = await self.send_heartbeats()
            pause_ms = min(_LOST_HEARTBEAT_MS, self.options.heartbeat_ms) if lost else self.options.heartbeat_ms

    def _lost(self, connection: Connection) -> None:
        # Brokers know a client by its connection: a new one must introduce itself at once.
        if not self._closing:
            self._heartbeat_wanted.set()
            address = self._pool.address_of(connection) if self._pool is not None else None
            if address is not None:
                self._routes.doubt_address(address)


def parse_name_servers(text: str) -> list[str]:
    """The addresses in `text`, which are separated by `;` or `,`."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not addresses:
        raise BadArgument("no name server address: give host:port, several separated by ';'")
    for address in addresses:
        try:
            parse_address(address)
        except AddressError as error:
            raise BadArgument(f"name server {error}") from error
    return addresses


def make_client_id(name_server: str, instance_name: str | None = None) -> str:
    """Unique among all clients of a cluster: the address seen from there, the process, a counter."""
    return f"{local_ip(name_server)}@{instance_name or f'{os.getpid()}#{time.time_ns()}#{next(_instances)}'}"


def local_ip(towards: str) -> str:
    """The address of this machine on the way to `towards`."""
    target = parse_address(towards)
    with contextlib.suppress(NetError), connecting_to(towards):
        info = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])
            return str(probe.getsockname()[0]).partition("%")[0]
    return "127.0.0.1"


def _address_in(route: TopicRoute, queue: MessageQueue, broker_id: int) -> str:
    address = route.address_of(queue.broker_name, broker_id)
    if address is None:
        raise NoMaster(queue.topic, queue.broker_name)
    return address


def _fields(header: object) -> dict[str, str] | None:
    return header if header is None or isinstance(header, dict) else encode_fields(header)
