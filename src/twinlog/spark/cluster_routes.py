"""Where the topics of a cluster are: its brokers, topics and routes, as the name servers know them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from twinlog.base.system_names import SYSTEM_TOPICS
from twinlog.client.errors import BrokerRefused, NoNameServer, NoRoute
from twinlog.client.routing.routes import TopicRoute, read_route
from twinlog.net.errors import NetError
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import CannotRead, NoReplica
from twinlog.spark.offsets import where
from twinlog.spark.remoting import Response, connection_to, forget_connection
from twinlog.wire.bodies import ClusterInfo, MessageQueue, TopicList, TopicRouteData, decode_body
from twinlog.wire.codes import MASTER_ID, RequestCode, ResponseCode
from twinlog.wire.command import Command

T = TypeVar("T")
_SYSTEM_TOPIC = re.compile(
    "|".join((*SYSTEM_TOPICS, "DefaultHeartBeatSyncerTopic", "(?:RMQ|rmq)_(?:SYS|sys)_.*", ".*_REPLY_TOPIC", "%SYS%.*"))
)


class ClusterRoutes:
    """Reads and caches routes; holds no socket, so it may travel between processes."""

    def __init__(self, options: ClusterOptions, read_from: str | None = None, *, waits: bool = False) -> None:
        """`read_from` is the option readFrom; None is for requests that only a master can answer."""
        self._options = options
        self._read_from = read_from or "master"
        self._has_choice = read_from is not None
        self._waits = waits
        self._routes: dict[str, TopicRoute] = {}

    def info(self) -> ClusterInfo:
        """All brokers, by name and by cluster, as the name server knows them."""
        return decode_body(
            ClusterInfo, bytes(self._ask_name_servers(Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        )

    def topics_like(self, pattern: str) -> list[str]:
        """The topics whose whole name matches, without system topics; those with a % only if the pattern begins so."""
        answer = self._ask_name_servers(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        names = set(decode_body(TopicList, bytes(answer.body)).topic_list)
        wants_percent = pattern.lstrip("(\\").startswith("%")
        plain = {name for name in names - self._own_topics() if not _SYSTEM_TOPIC.fullmatch(name)}
        wanted = plain if wants_percent else {name for name in plain if not name.startswith("%")}
        return sorted(name for name in wanted if re.fullmatch(pattern, name))

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of a topic, from the cache unless `fresh`; NoRoute if it does not exist."""
        if fresh or topic not in self._routes:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            try:
                answer = self._ask_name_servers(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=fields))
            except BrokerRefused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise NoRoute(topic, ";".join(self._options.name_servers)) from None
                raise
            self._routes[topic] = read_route(topic, decode_body(TopicRouteData, bytes(answer.body)))
        return self._routes[topic]

    def address_of(self, queue: MessageQueue, *, fresh: bool = False, attempt: int = 0) -> str:
        """Where to read a queue, by `readFrom`; with `any`, each further attempt takes the next broker."""
        brokers = self.route(queue.topic, fresh=fresh).brokers.get(queue.broker_name, {})
        if self._read_from == "master":
            usable = [brokers[MASTER_ID]] if MASTER_ID in brokers else []
        else:
            ids = sorted(broker_id for broker_id in brokers if broker_id != MASTER_ID)
            first = [MASTER_ID] if self._read_from == "any" and MASTER_ID in brokers else []
            usable = [brokers[broker_id] for broker_id in (*first, *ids)]
        if not usable:
            known = ", ".join(f"{broker_id} at {address}" for broker_id, address in sorted(brokers.items())) or "none"
            wanted = "broker" if self._read_from == "any" else self._read_from
            hint = (
                "readFrom=any reads from any broker that is up"
                if self._has_choice
                else "start it, or check its registration"
            )
            kind = NoReplica if MASTER_ID in brokers else CannotRead
            raise kind(f"{where(queue)}: no {wanted} is registered (broker ids: {known}); {hint}")
        return usable[attempt % len(usable)]

    def masters(self) -> set[str]:
        table = self.info().broker_addr_table
        return {name for name, broker in table.items() if MASTER_ID in broker.broker_addrs}

    def _own_topics(self) -> set[str]:
        """Clusters and brokers have a topic of their own name."""
        info = self.info()
        return set(info.broker_addr_table) | set(info.cluster_addr_table)

    # -- requests ----------------------------------------------------------------------------------

    def _ask_name_servers(self, command: Command) -> Response:
        def ask(attempt: int) -> Response:
            last: NetError | None = None
            for address in self._options.name_servers:
                try:
                    (answer,) = self._ask(address, [command])
                except NetError as error:
                    last = error
                    continue
                self._check(address, command.code, answer)
                return answer
            raise NoNameServer(";".join(self._options.name_servers), last)

        return self._retry_on_failure(ask)

    def _ask(self, address: str, commands: list[Command]) -> list[Response]:
        try:
            return connection_to(address, self._options).ask(commands)
        except NetError:
            forget_connection(address, self._options)
            raise

    def _retry_on_failure(self, ask: Callable[[int], T]) -> T:
        for attempt in range(self._options.tries):
            try:
                return ask(attempt)
            except (NetError, NoNameServer):
                if attempt + 1 == self._options.tries:
                    raise
                time.sleep(self._options.retry_interval_ms / 1000)
        raise AssertionError("there is at least one try")

    @staticmethod
    def _check(address: str, code: int, answer: Response, also_accept: tuple[int, ...] = ()) -> None:
        if answer.code != ResponseCode.SUCCESS and answer.code not in also_accept:
            raise BrokerRefused(code, answer.code, answer.remark, address)
