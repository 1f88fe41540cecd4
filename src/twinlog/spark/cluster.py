"""What the driver asks a cluster: topics, queues, their offsets, and where groups stand.

Questions to one broker travel together. A question that fails is asked again a few times, after a fresh look at the
route: a broker may have died, moved, or changed its role. With `waits`, a broker that is away is waited for.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from twinlog.client.consuming.pulling import PULL_CODES, pull_header, subscription_of
from twinlog.client.errors import BrokerRefused, NoNameServer, NoRoute
from twinlog.client.routing.routes import TopicRoute, read_route
from twinlog.net.errors import NetError
from twinlog.spark.broker_wait import retry_while_away
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import CannotRead, NoReplica, OffsetsNotKept
from twinlog.spark.offsets import Offsets, commit_waves, where
from twinlog.spark.remoting import Response, connection_to, forget_connection
from twinlog.wire.bodies import ClusterInfo, MessageQueue, TopicList, TopicRouteData, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import QueryOffsetHeader, QueueHeader, SearchOffsetHeader, UpdateOffsetHeader
from twinlog.wire.message import decode_message

T = TypeVar("T")
MASTER_ID = 0
AWAY = (NetError, CannotRead, NoRoute, NoNameServer)  # what a broker that is away looks like
LOOK_AGAIN_S = 1.0  # a broker that has just started may register its topics in several parts
_SYSTEM_TOPIC = re.compile(
    r"TBW102|SCHEDULE_TOPIC_XXXX|BenchmarkTest|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|TRANS_CHECK_MAX_TIME_TOPIC"
    r"|CHECKPOINT_TOPIC|DefaultHeartBeatSyncerTopic|(?:RMQ|rmq)_(?:SYS|sys)_.*|.*_REPLY_TOPIC|%SYS%.*"
)


class Cluster:
    """Answers about a cluster, asked for at need; holds no socket, so it may travel between processes."""

    def __init__(self, options: ClusterOptions, read_from: str | None = None, *, waits: bool = False) -> None:
        """`read_from` is the user's choice; None is for what only masters can do, whatever he chose."""
        self._options = options
        self._read_from = read_from or "master"
        self._has_choice = read_from is not None
        self._waits = waits
        self._routes: dict[str, TopicRoute] = {}

    def info(self) -> ClusterInfo:
        """All brokers, by name and by cluster, as the name server knows them."""
        return decode_body(ClusterInfo, bytes(self._ask_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body))

    # -- topics and queues -------------------------------------------------------------------------

    def topics_like(self, pattern: str) -> list[str]:
        """The topics whose whole name matches; never the brokers' own, and those with a % only if it begins so."""
        answer = self._ask_name_server(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        names = set(decode_body(TopicList, bytes(answer.body)).topic_list)
        own = self._own_topics()
        wants_marked = pattern.lstrip("(\\").startswith("%")
        plain = {name for name in names - own if not _SYSTEM_TOPIC.fullmatch(name)}
        wanted = plain if wants_marked else {name for name in plain if not name.startswith("%")}
        return sorted(name for name in wanted if re.fullmatch(pattern, name))

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The readable queues of `topics`; NoRoute for a topic that does not exist."""
        return sorted(queue for topic in topics for queue in self.existing(topic).readable)

    def existing(self, topic: str, *, fresh: bool = True) -> TopicRoute:
        """A route; NoRoute when some broker is there, and none has the topic."""

        def ask() -> TopicRoute:
            try:
                return self.route(topic, fresh=fresh)
            except NoRoute as error:
                if self._waits and not self._masters():
                    raise CannotRead(f"{error}; no master is registered at all") from error
                raise

        return self._retry_while_away(f"of topic {topic}", ask, CannotRead)

    def route_with(self, topic: str, wanted: Iterable[MessageQueue]) -> TopicRoute:
        """A fresh route, after a wait for those of the `wanted` writable queues whose broker is away."""

        def ask() -> TopicRoute:
            route = self.route(topic, fresh=True)
            absent = {queue.broker_name for queue in set(wanted) - set(route.writable)} - self._masters()
            if absent:
                raise CannotRead(f"topic {topic}: broker {min(absent)} is not registered")
            return route

        return self._retry_while_away(f"of topic {topic}", ask, (CannotRead, NoRoute))

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        if fresh or topic not in self._routes:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            try:
                answer = self._ask_name_server(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=fields))
            except BrokerRefused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise NoRoute(topic, ";".join(self._options.name_servers)) from None
                raise
            self._routes[topic] = read_route(topic, decode_body(TopicRouteData, bytes(answer.body)))
        return self._routes[topic]

    def address_of(self, queue: MessageQueue, *, fresh: bool = False, attempt: int = 0) -> str:
        """Where to read a queue, as `readFrom` says; with `any`, each further attempt takes the next broker."""
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
            hint = "readFrom=any takes whichever is up" if self._has_choice else "start it, or check its registration"
            kind = NoReplica if MASTER_ID in brokers else CannotRead
            raise kind(f"{where(queue)}: no {wanted} is registered (broker ids: {known}); {hint}")
        return usable[attempt % len(usable)]

    def lost(self, queues: Iterable[MessageQueue], known: Iterable[MessageQueue] = ()) -> set[MessageQueue]:
        """Those of `queues` whose master is registered without them; one that is away has them still.

        What is not `known` to be lost is looked at twice.
        """
        found = self._lost_now(queues)
        if found - set(known):
            time.sleep(LOOK_AGAIN_S)
            found = self._lost_now(found)
        return found

    def _lost_now(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        # First the brokers, then the routes: the other way round, a broker could come back in between.
        masters = self._masters()
        asked = {queue for queue in queues if queue.broker_name in masters}
        present: set[MessageQueue] = set()
        for topic in sorted({queue.topic for queue in asked}):
            with contextlib.suppress(NoRoute):
                present.update(self.route(topic, fresh=True).readable)
        return asked - present

    def _masters(self) -> set[str]:
        table = self.info().broker_addr_table
        return {name for name, broker in table.items() if MASTER_ID in broker.broker_addrs}

    # -- offsets -----------------------------------------------------------------------------------

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return self._offsets(queues, lambda q: _queue_request(RequestCode.GET_MIN_OFFSET, q))

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return self._offsets(queues, lambda q: _queue_request(RequestCode.GET_MAX_OFFSET, q))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        """The first offset stored at or after each queue's time; its max offset when there is none."""

        def request(queue: MessageQueue) -> Command:
            header = SearchOffsetHeader(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=times_ms[queue], boundary_type="LOWER"
            )
            return Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields=encode_fields(header))

        return self._offsets(times_ms, request)

    def store_times(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """When the messages at these offsets were stored; without those that are not there."""

        def request(queue: MessageQueue) -> Command:
            subscription = subscription_of(queue.topic, "*")
            header = pull_header(group, queue, offsets[queue], subscription, count_max=1, send_subscription=True)
            return Command(RequestCode.PULL_MESSAGE, fields=encode_fields(header))

        answers = self._ask_brokers(offsets, request, PULL_CODES)
        return {q: decode_message(answer.body).store_timestamp for q, answer in answers.items() if len(answer.body)}

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Offsets:
        """Where the group goes on; queues in which it never committed are left out."""

        def request(queue: MessageQueue) -> Command:
            # Without this Java answers 0 for a queue that still has its first message.
            header = QueryOffsetHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
            )
            return Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=encode_fields(header))

        return self._offsets(queues, request, (ResponseCode.QUERY_NOT_FOUND,))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Note the next offset of each queue for the group, and read it back; OffsetsNotKept names what is lost."""

        def request(queue: MessageQueue) -> Command:
            header = UpdateOffsetHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offsets[queue]
            )
            return Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=encode_fields(header))

        for wave in commit_waves(offsets):
            self._ask_brokers(wave, request)
        found = self.committed(group, offsets)
        for queue, wanted in sorted(offsets.items()):
            if found.get(queue) != wanted:
                raise OffsetsNotKept(group, where(queue), wanted, found.get(queue))

    def _offsets(
        self, queues: Iterable[MessageQueue], request: Callable[[MessageQueue], Command], absent: tuple[int, ...] = ()
    ) -> Offsets:
        answers = self._ask_brokers(queues, request, absent)
        return {queue: int(answer.fields["offset"]) for queue, answer in answers.items() if answer.code not in absent}

    def _own_topics(self) -> set[str]:
        """Clusters and brokers have a topic of their own name."""
        info = self.info()
        return set(info.broker_addr_table) | set(info.cluster_addr_table)

    # -- asking ------------------------------------------------------------------------------------

    def _ask_brokers(
        self,
        queues: Iterable[MessageQueue],
        request: Callable[[MessageQueue], Command],
        also_accept: tuple[int, ...] = (),
    ) -> dict[MessageQueue, Response]:
        found: dict[MessageQueue, Response] = {}
        for name, left in by_broker(queues).items():
            ask = partial(self._ask_broker, left, request, also_accept)
            found |= self._retry_while_away(name, partial(self._again_on_failure, ask), AWAY, left)
        return found

    def _ask_broker(
        self,
        left: list[MessageQueue],
        request: Callable[[MessageQueue], Command],
        also_accept: tuple[int, ...],
        attempt: int,
    ) -> dict[MessageQueue, Response]:
        if attempt:
            for topic in {queue.topic for queue in left}:
                self.route(topic, fresh=True)
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in left:
            by_address.setdefault(self.address_of(queue, attempt=attempt), []).append(queue)
        found: dict[MessageQueue, Response] = {}
        for address, asked in by_address.items():
            with _told_where(asked[0]):
                answers = self._ask(address, [request(queue) for queue in asked])
            for queue, answer in zip(asked, answers, strict=True):
                with _told_where(queue):
                    self._check(address, request(queue).code, answer, also_accept)
                found[queue] = answer
        return found

    def _retry_while_away(
        self,
        name: str,
        ask: Callable[[], T],
        away: type[Exception] | tuple[type[Exception], ...],
        queues: Iterable[MessageQueue] = (),
    ) -> T:
        """What `ask` returns, after a wait for the broker while it raises `away`.

        Queues that are gone end the wait, and so does a master that has no replica: there may never be one.
        """
        if not self._waits:
            return ask()
        is_alone = False

        def ask_again() -> T:
            try:
                return ask()
            except away as error:
                nonlocal is_alone
                is_alone = isinstance(error, NoReplica)
                self._routes.clear()
                raise

        def is_over() -> bool:
            return is_alone or self._has_lost_some(queues)

        return retry_while_away(name, ask_again, away, self._options.broker_wait_ms, is_over)

    def _has_lost_some(self, queues: Iterable[MessageQueue]) -> bool:
        with contextlib.suppress(*AWAY):
            return bool(self.lost(queues))
        return False

    def _ask_name_server(self, command: Command) -> Response:
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

        return self._again_on_failure(ask)

    def _ask(self, address: str, commands: list[Command]) -> list[Response]:
        try:
            return connection_to(address, self._options).ask(commands)
        except NetError:
            forget_connection(address, self._options)
            raise

    def _again_on_failure(self, ask: Callable[[int], T]) -> T:
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


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues of each broker, sorted."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_name, []).append(queue)
    return found


@contextlib.contextmanager
def _told_where(queue: MessageQueue) -> Iterator[None]:
    """Put the queue that was asked about in front of what a failure says."""
    try:
        yield
    except (NetError, BrokerRefused) as error:
        error.args = (f"{where(queue)}: {error}",)
        raise


def _queue_request(code: int, queue: MessageQueue) -> Command:
    return Command(code, fields=encode_fields(QueueHeader(topic=queue.topic, queue_id=queue.queue_id)))
