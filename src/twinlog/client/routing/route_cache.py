"""The routes of the topics that a client uses: cached, refreshed, and asked for again when in doubt.

At most one question per topic is under way; everyone who wants its answer waits for the same one.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.errors import BrokerRefused, ClientClosed, ClientError, NoRoute
from twinlog.client.routing.route_doubt import RouteDoubt
from twinlog.client.routing.routes import TopicRoute, borrowed_route, broker_addresses, read_route
from twinlog.client.tasks import TaskSet
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicRouteData
from twinlog.wire.codes import ResponseCode
from twinlog.wire.errors import WireError

log = get_logger(__name__)
_T = TypeVar("_T")


class RouteCache:
    """Routes by topic, from `fetch`, which asks a name server.

    `on_change` gets a topic, whether its route has addresses that no route had before, and whether it is the first.
    """

    def __init__(
        self,
        name_servers: str,
        fetch: Callable[[str], Awaitable[TopicRouteData]],
        on_change: Callable[[str, bool, bool], None],
        tasks: TaskSet,
    ) -> None:
        self._name_servers, self._fetch, self._on_change, self._tasks = name_servers, fetch, on_change, tasks
        self._routes: dict[str, TopicRoute] = {}
        self._wanted: set[str] = set()  # topics whose route is kept fresh
        self._doubt = RouteDoubt()
        self._renewals: dict[str, asyncio.Task[None]] = {}
        self._questions: dict[tuple[str, int], asyncio.Task[TopicRoute]] = {}

    async def get(self, topic: str, create_queues: int = 0) -> TopicRoute:
        """The topic's route. With `create_queues` an unknown topic borrows that of TBW102."""
        route = self._routes.get(topic)
        if route is None or (route.is_default and not create_queues):
            return await self._ask(topic, create_queues)
        return route

    def known(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def addresses(self) -> set[str]:
        return broker_addresses(routes=list(self._routes.values()))

    def doubt(self, topic: str) -> None:
        """Have the route of `topic` asked for again soon: something at its end failed."""
        self._renewal(topic)

    def doubt_address(self, address: str) -> None:
        """Doubt every route that leads to `address`."""
        for topic, route in self._routes.items():
            if topic not in self._renewals and any(address in ids.values() for ids in route.brokers.values()):
                self.doubt(topic)

    async def renew(self, topic: str) -> None:
        """Return once the route of `topic` was asked for again, no more often than RouteDoubt permits.

        A name server that does not answer, or has forgotten the topic, leaves the last route in place.
        """
        await _result(self._renewal(topic))

    async def refresh_all(self) -> None:
        for topic in list(self._wanted):
            await self._refresh(topic)

    def _renewal(self, topic: str) -> asyncio.Task[None]:
        task = self._renewals.get(topic)
        if task is None:
            task = self._renewals[topic] = self._tasks.start(self._renew(topic), f"renew route {topic}")
            task.add_done_callback(lambda _: self._renewals.pop(topic, None))
        return task

    async def _renew(self, topic: str) -> None:
        wait_ms = self._doubt.reserve(topic, _now_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        before = self._routes.get(topic)
        await self._refresh(topic)
        self._doubt.asked(topic, _now_ms(), changed=self._routes.get(topic) != before)

    async def _refresh(self, topic: str) -> None:
        known = self._routes.get(topic)
        # A topic that is gone keeps its last route: more often the name server has just restarted.
        queues = known.borrowed_queues if known is not None else 0
        try:
            await self._ask(topic, queues)
        except NoRoute:
            return
        except (NetError, ClientError, WireError) as error:
            log.warning("a route could not be refreshed", topic=topic, error=str(error))

    async def _ask(self, topic: str, create_queues: int) -> TopicRoute:
        self._wanted.add(topic)
        key = (topic, create_queues)
        task = self._questions.get(key)
        if task is None:
            task = self._questions[key] = self._tasks.start(self._question(*key), f"ask route {topic}", awaited=True)
            task.add_done_callback(lambda done: self._answered(key, done))
        return await _result(task)

    def _answered(self, key: tuple[str, int], task: asyncio.Task[TopicRoute]) -> None:
        self._questions.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever asked may have run out of time: the error is not a forgotten one

    async def _question(self, topic: str, create_queues: int) -> TopicRoute:
        route = await self._read(topic, create_queues)
        before = self._routes.get(topic)
        if before != route:
            new_addresses = bool(broker_addresses(routes=[route]) - self.addresses())
            self._routes[topic] = route
            self._on_change(topic, new_addresses, before is None)
        return route

    async def _read(self, topic: str, create_queues: int) -> TopicRoute:
        try:
            return read_route(topic, await self._fetch(topic))
        except BrokerRefused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        if create_queues:
            with contextlib.suppress(BrokerRefused):
                return borrowed_route(topic, await self._fetch(AUTO_CREATE_TOPIC), create_queues)
        raise NoRoute(topic, self._name_servers)


async def _result(task: asyncio.Task[_T]) -> _T:
    """What a shared task brings. One that was cancelled belongs to a closed client; its caller was not cancelled."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if task.cancelled() and caller is not None and not caller.cancelling():
            raise ClientClosed("the client") from None
        raise


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
