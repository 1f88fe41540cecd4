"""A running client's connections: requests to brokers and name servers, cached routes, heartbeats.

Each producer, consumer and admin owns one session. It keeps three promises: routes in use are asked for again every
30 s and as soon as a request to one of their brokers fails, every broker in them gets a heartbeat every 30 s and again
as soon as a connection was lost, and all of its tasks end with `close`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from twinlog.base.addresses import VIP_PORT_BELOW
from twinlog.client.errors import BrokerRefused, ClientClosed, NoMaster, NoNameServer, NoRoute
from twinlog.client.options import ClientOptions
from twinlog.client.routing.client_id import make_client_id
from twinlog.client.routing.failures import route_may_be_stale
from twinlog.client.routing.heartbeats import Heartbeats
from twinlog.client.routing.name_servers import parse_name_servers
from twinlog.client.routing.route_cache import RouteCache
from twinlog.client.routing.routes import TopicRoute
from twinlog.client.signing import sign
from twinlog.client.tasks import TaskSet
from twinlog.net.connecting import below
from twinlog.net.connection import Connection, Handler
from twinlog.net.errors import ConnectFailed, NetError
from twinlog.net.pool import ConnectionPool
from twinlog.wire.bodies import HeartbeatData, MessageQueue, TopicRouteData, decode_body
from twinlog.wire.codes import MASTER_ID, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import UnregisterClientHeader

LANGUAGE = "PYTHON"  # what requests call the sender
_NOT_ON_VIP_PORT = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


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
        self._on_route_change = on_route_change
        self._pool: ConnectionPool | None = None
        self._tasks = TaskSet()
        self._routes = RouteCache(";".join(self.name_servers), self._fetch_route, self._route_changed, self._tasks)
        self._heartbeats: Heartbeats | None = None
        if heartbeat is not None:
            interval_ms = self.options.heartbeat_ms
            self._heartbeats = Heartbeats(heartbeat, self._routes.addresses, self._post_heartbeat, interval_ms)
        self._name_server_at = 0
        self._closing = False

    async def start(self) -> None:
        self._pool = ConnectionPool(
            self._handlers,
            tls=self.options.tls,
            connect_timeout_ms=self.options.connect_timeout_ms,
            before_request=self._prepare,
            on_close=self._connection_lost,
        )
        self._closing = False
        self._tasks.keep(self._refresh_routes, "refresh routes")
        if self._heartbeats is not None:
            self._tasks.keep(self._heartbeats.run, "heartbeat")

    async def close(self) -> None:
        self._closing = True
        await self._tasks.close()
        if self._pool is not None:
            await self._pool.close()
            await asyncio.sleep(0)  # lets the transports finish closing
            self._pool = None

    # -- requests ------------------------------------------------------------------------------

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

        After a failure that a new master would explain, the routes to `address` are asked for again.
        """
        timeout_ms = timeout_ms or self.options.request_timeout_ms
        try:
            connection = self.current(address, code) or await self.connect(address, code, timeout_ms)
            answer = await connection.request(code, _fields(header), body, timeout_ms)
            if answer.code not in accept:
                raise BrokerRefused(code, answer.code, answer.remark, address)
        except (NetError, BrokerRefused) as error:
            self.failed_at(address, error)
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

        When it fails as a broker does that is no longer the master, the route is renewed, and a broker that is new in
        it is asked too. Only for requests that may arrive twice.
        """
        address = _address_in(await self.route(queue.topic), queue, broker_id)
        try:
            return await self.ask(address, code, header, timeout_ms=timeout_ms, accept=accept)
        except (NetError, BrokerRefused) as error:
            if not route_may_be_stale(error):
                raise
            route = await self.renewed_route(queue.topic, self.options.request_timeout_ms)
            renewed = route.address_of(queue.broker_name)
            if renewed is None or renewed == address:
                raise
        return await self.ask(renewed, code, header, timeout_ms=timeout_ms, accept=accept)

    async def send_oneway(self, address: str, code: int, header: object = None, body: bytes | None = None) -> None:
        """Send a request that is not answered."""
        try:
            await self._open_pool().oneway(self._port(address, code), code, _fields(header), body)
        except NetError:
            self._routes.renew_routes_to(address)
            raise

    async def ask_name_server(self, code: int, header: object = None, body: bytes | None = None) -> Command:
        """The answer of the first name server that can be reached, starting with the last one that answered."""
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

    def current(self, address: str, code: int) -> Connection | None:
        """The open connection for requests of this code to `address`, if there is one."""
        return self._open_pool().current(self._port(address, code))

    async def connect(self, address: str, code: int, timeout_ms: int) -> Connection:
        """A connection, opened within the caller's time and not only within the pool's."""
        pool, port = self._open_pool(), self._port(address, code)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await pool.get(port)
        except TimeoutError:
            raise ConnectFailed(port, f"no connection within {timeout_ms} ms") from None

    def failed_at(self, address: str, error: Exception) -> None:
        """A request to `address` failed; when a new master would explain it, its routes are asked for again."""
        if route_may_be_stale(error):
            self._routes.renew_routes_to(address)

    @property
    def signs_requests(self) -> bool:
        return self.options.credentials is not None

    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            raise ClientClosed("the client")
        return self._pool

    def _port(self, address: str, code: int) -> str:
        if not self.options.vip_channel or code in _NOT_ON_VIP_PORT or address in self.name_servers:
            return address
        return below(address, VIP_PORT_BELOW)

    def _prepare(self, command: Command) -> None:
        command.language = LANGUAGE
        if self.options.credentials is not None:
            sign(command, self.options.credentials)

    def _connection_lost(self, connection: Connection) -> None:
        if self._closing:
            return
        if self._heartbeats is not None:
            self._heartbeats.send_soon()
        address = self._pool.address_of(connection) if self._pool is not None else None
        if address is not None:
            self._routes.renew_routes_to(address)

    # -- routes --------------------------------------------------------------------------------

    async def route(self, topic: str, *, create_queues: int = 0) -> TopicRoute:
        """The topic's route, cached. With `create_queues` an unknown topic borrows that of TBW102."""
        return await self._routes.get(topic, create_queues)

    async def find_route(self, topic: str) -> TopicRoute | None:
        """The topic's route; None while the name server does not know the topic."""
        with contextlib.suppress(NoRoute):
            return await self.route(topic)
        return None

    def known_route(self, topic: str) -> TopicRoute | None:
        """The route in the cache; None if there is none yet."""
        return self._routes.known(topic)

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
        if new_addresses and self._heartbeats is not None:
            self._heartbeats.send_soon()
        if not first and self._on_route_change is not None:
            self._on_route_change(topic)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.options.route_refresh_ms / 1000)
            await self._routes.refresh_all()

    # -- membership ----------------------------------------------------------------------------

    async def send_heartbeats(self, addresses: Iterable[str] | None = None) -> list[Exception]:
        """Send a heartbeat to these brokers (to all in use by default); the failures."""
        return [] if self._heartbeats is None else await self._heartbeats.send(addresses)

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Report to all connected brokers that this member leaves its group, so that the others take over at once."""
        header = UnregisterClientHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        live = self._pool.live() if self._pool is not None else {}
        code = RequestCode.UNREGISTER_CLIENT
        asked = [self.ask(a, code, header) for a in self._routes.addresses() if self._port(a, code) in live]
        await asyncio.gather(*asked, return_exceptions=True)  # a broker that fails notices the closed connection

    async def _post_heartbeat(self, address: str, body: bytes) -> Command:
        return await self.ask(address, RequestCode.HEART_BEAT, {}, body)


def _address_in(route: TopicRoute, queue: MessageQueue, broker_id: int) -> str:
    address = route.address_of(queue.broker_name, broker_id)
    if address is None:
        raise NoMaster(queue.topic, queue.broker_name)
    return address


def _fields(header: object) -> dict[str, str] | None:
    return header if header is None or isinstance(header, dict) else encode_fields(header)
