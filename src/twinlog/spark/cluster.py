"""What the driver asks a cluster: queues, their offsets, and the offsets of groups.

Requests to one broker travel together. A request that fails is sent again a few times, each time with a fresh route:
the broker may have died, moved, or changed its role.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from twinlog.client.consuming.pulling import PULL_CODES, pull_header, subscription_of
from twinlog.client.errors import BrokerRefused, NoNameServer, NoRoute
from twinlog.client.routing.routes import TopicRoute
from twinlog.net.errors import NetError
from twinlog.spark.broker_wait import retry_while_away
from twinlog.spark.cluster_routes import ClusterRoutes
from twinlog.spark.errors import CannotRead, NoReplica, OffsetsNotKept
from twinlog.spark.offsets import Offsets, commit_waves, where
from twinlog.spark.remoting import Response
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import QueryOffsetHeader, QueueHeader, SearchOffsetHeader, UpdateOffsetHeader
from twinlog.wire.message import decode_message

T = TypeVar("T")
AWAY = (NetError, CannotRead, NoRoute, NoNameServer)  # errors of a broker that is away
ASK_AGAIN_S = 1.0  # a broker that has just started may register its topics in several parts


class Cluster(ClusterRoutes):
    """Also reads what the brokers know: offsets of queues and of groups.

    With `waits`, a broker that is away is waited for.
    """

    # -- topics and queues -------------------------------------------------------------------------

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The readable queues of `topics`; NoRoute for a topic that does not exist."""
        return sorted(queue for topic in topics for queue in self.existing(topic).readable)

    def existing(self, topic: str, *, fresh: bool = True) -> TopicRoute:
        """A route; NoRoute if a master is registered and none has the topic."""

        def ask() -> TopicRoute:
            try:
                return self.route(topic, fresh=fresh)
            except NoRoute as error:
                if self._waits and not self.masters():
                    raise CannotRead(f"{error}; no master is registered at all") from error
                raise

        return self._retry_while_away(f"of topic {topic}", ask, CannotRead)

    def route_with(self, topic: str, wanted: Iterable[MessageQueue]) -> TopicRoute:
        """A fresh route; waits while the broker of one of the `wanted` writable queues is away."""

        def ask() -> TopicRoute:
            route = self.route(topic, fresh=True)
            absent = {queue.broker_name for queue in set(wanted) - set(route.writable)} - self.masters()
            if absent:
                raise CannotRead(f"topic {topic}: broker {min(absent)} is not registered")
            return route

        return self._retry_while_away(f"of topic {topic}", ask, (CannotRead, NoRoute))

    def lost(self, queues: Iterable[MessageQueue], known: Iterable[MessageQueue] = ()) -> set[MessageQueue]:
        """Those of `queues` whose master is registered without them; a master that is away still has them.

        Queues that are not `known` to be lost are checked twice.
        """
        found = self._lost_now(queues)
        if found - set(known):
            time.sleep(ASK_AGAIN_S)
            found = self._lost_now(found)
        return found

    def _lost_now(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        # First the brokers, then the routes: in the other order a broker could come back in between.
        masters = self.masters()
        asked = {queue for queue in queues if queue.broker_name in masters}
        present: set[MessageQueue] = set()
        for topic in sorted({queue.topic for queue in asked}):
            with contextlib.suppress(NoRoute):
                present.update(self.route(topic, fresh=True).readable)
        return asked - present

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
        """When the messages at these offsets were stored; without those that do not exist."""

        def request(queue: MessageQueue) -> Command:
            subscription = subscription_of(queue.topic, "*")
            header = pull_header(group, queue, offsets[queue], subscription, count_max=1, send_subscription=True)
            return Command(RequestCode.PULL_MESSAGE, fields=encode_fields(header))

        answers = self._ask_brokers(offsets, request, PULL_CODES)
        return {q: decode_message(answer.body).store_timestamp for q, answer in answers.items() if len(answer.body)}

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Offsets:
        """The next offset of the group in each queue; queues in which it never committed are left out."""

        def request(queue: MessageQueue) -> Command:
            # Without this Java answers 0 for a queue that still has its first message.
            header = QueryOffsetHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
            )
            return Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=encode_fields(header))

        return self._offsets(queues, request, (ResponseCode.QUERY_NOT_FOUND,))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the next offset of each queue for the group, and read it back; OffsetsNotKept names what was lost."""

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
            found |= self._retry_while_away(name, partial(self._retry_on_failure, ask), AWAY, left)
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
            with _queue_in_errors(asked[0]):
                answers = self._ask(address, [request(queue) for queue in asked])
            for queue, answer in zip(asked, answers, strict=True):
                with _queue_in_errors(queue):
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
        """What `ask` returns; while it raises `away`, wait for the broker and ask again.

        The wait ends if queues were deleted, or if a master has no replica: there may never be one.
        """
        if not self._waits:
            return ask()
        lacks_replica = False

        def ask_again() -> T:
            try:
                return ask()
            except away as error:
                nonlocal lacks_replica
                lacks_replica = isinstance(error, NoReplica)
                self._routes.clear()
                raise

        def is_over() -> bool:
            return lacks_replica or self._has_lost_queues(queues)

        return retry_while_away(name, ask_again, away, self._options.broker_wait_ms, is_over)

    def _has_lost_queues(self, queues: Iterable[MessageQueue]) -> bool:
        with contextlib.suppress(*AWAY):
            return bool(self.lost(queues))
        return False


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues of each broker, sorted."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_name, []).append(queue)
    return found


@contextlib.contextmanager
def _queue_in_errors(queue: MessageQueue) -> Iterator[None]:
    """Put the queue that was asked about before the text of an error."""
    try:
        yield
    except (NetError, BrokerRefused) as error:
        error.args = (f"{where(queue)}: {error}",)
        raise


def _queue_request(code: int, queue: MessageQueue) -> Command:
    return Command(code, fields=encode_fields(QueueHeader(topic=queue.topic, queue_id=queue.queue_id)))
