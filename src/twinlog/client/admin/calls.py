"""The base of all admin calls: requests to a broker, to a name server, or to all name servers."""

from typing import Any, TypeVar

from twinlog.client.base_client import BaseClient
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import BadArgument, BrokerRefused, NoRoute
from twinlog.client.options import ClientOptions
from twinlog.client.routing.session import Session
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import Body, ClusterInfo, TopicRouteData, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.fastjson import loads

log = get_logger(__name__)
S = TypeVar("S", bound=Body)
ADMIN_TIMEOUT_MS = 5_000


class AdminCalls(BaseClient):
    """A session, and requests on it that raise BrokerRefused for every error code."""

    def __init__(
        self, name_servers: str, *, options: ClientOptions | None = None, timeout_ms: int = ADMIN_TIMEOUT_MS
    ) -> None:
        self.session = Session(name_servers, options)
        self.queue_calls = QueueCalls(self.session)
        self._timeout_ms = timeout_ms

    async def cluster_info(self) -> ClusterInfo:
        """All brokers that the name server has, by name and by cluster."""
        return await self._names(ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)

    async def masters(self, cluster: str) -> list[str]:
        """The addresses of the cluster's masters; BadArgument for an unknown cluster."""
        info = await self.cluster_info()
        found = [info.broker_addr_table[name].broker_addrs for _, name in named_brokers(info, cluster)]
        return [addresses[0] for addresses in found if 0 in addresses]

    async def addresses(self, cluster: str) -> list[str]:
        """The addresses of all brokers of the cluster, replicas too."""
        info = await self.cluster_info()
        found = [info.broker_addr_table[name].broker_addrs for _, name in named_brokers(info, cluster)]
        return [address for addresses in found for _, address in sorted(addresses.items())]

    async def route_data(self, topic: str) -> TopicRouteData:
        """The topic's route in the name server's form."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            return await self._names(TopicRouteData, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except BrokerRefused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        raise NoRoute(topic, ";".join(self.session.name_servers))

    async def topic_masters(self, topic: str) -> dict[str, str]:
        """Broker name -> address of its master (else of any replica) for the brokers that have the topic."""
        route = await self.session.route(topic)
        found = {name: route.address_of(name) for name in sorted(route.brokers)}
        return {name: address for name, address in found.items() if address is not None}

    # -- requests ------------------------------------------------------------------------------

    async def ask_broker(
        self,
        address: str,
        code: int,
        header: object = None,
        body: bytes | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """The answer of the broker at `address` to one request."""
        return await self.session.ask(address, code, header, body, timeout_ms=timeout_ms or self._timeout_ms)

    async def ask_all_name_servers(self, code: int, header: object = None, body: bytes | None = None) -> None:
        """Send a request to every name server; NetError only when none of them can be reached."""
        reached, last = 0, None
        for address in self.session.name_servers:
            try:
                await self.session.ask(address, code, header, body, timeout_ms=self._timeout_ms)
                reached += 1
            except NetError as error:
                log.warning("a name server could not be reached", name_server=address, error=str(error))
                last = error
        if not reached and last is not None:
            raise last

    async def _broker(
        self, kind: type[S], address: str, code: int, header: object = None, body: bytes | None = None
    ) -> S:
        return decode_body(kind, (await self.ask_broker(address, code, header, body)).body)

    async def _broker_json(
        self, address: str, code: int, header: object = None, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        return read_json((await self.ask_broker(address, code, header, timeout_ms=timeout_ms)).body)

    async def _names(self, kind: type[S], code: int, header: object = None) -> S:
        return decode_body(kind, (await self.session.ask_name_server(code, header)).body)


def named_brokers(info: ClusterInfo, cluster: str | None = None) -> list[tuple[str, str]]:
    """(cluster, broker name) for the brokers of one cluster or of all; BadArgument for an unknown cluster."""
    clusters = sorted(info.cluster_addr_table)
    if cluster is not None and cluster not in clusters:
        raise BadArgument(f"cluster {cluster!r} is not registered; there are: {', '.join(clusters) or 'none'}")
    wanted = clusters if cluster is None else [cluster]
    return [(each, name) for each in wanted for name in sorted(info.cluster_addr_table[each])]


def read_json(body: bytes | None) -> dict[str, Any]:
    value = loads(body or b"{}")
    if not isinstance(value, dict):
        raise BodyError(f"a JSON object expected, the body is a {type(value).__name__}")
    return value
