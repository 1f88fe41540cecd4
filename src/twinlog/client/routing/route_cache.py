"""The routes of the topics that a client uses: cached, refreshed, and renewed when they may be stale.

At most one question per topic is under way; all callers that need its answer wait for the same one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twinlog.base.clock import monotonic_ms
from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.errors import REQUEST_FAILURES, BrokerRefused, ClientClosed, NoRoute
from twinlog.client.routing.renewal_pace import RenewalPace
from twinlog.client.routing.routes import TopicRoute, borrowed_route, broker_addresses, read_route
from twinlog.client.tasks import TaskSet
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicRouteData
from twinlog.wire.codes import ResponseCode

log = get_logger(__name__)
_T = TypeVar("_T")


class RouteCache:
    """Routes by topic, from `fetch`, which asks a name server.

    `on_change(topic, new_addresses, first)` is called for each change: `new_addresses` if the route has an address
    that no other route has, `first` if the topic had no route before.
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
        self._pace = RenewalPace()
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
        return broker_addresses(self._routes.values())

    def renew_routes_to(self, address: str) -> None:
        """Start to renew every route that leads to `address`: a request to it failed."""
        for topic, route in self._routes.items():
            if topic not in self._renewals and any(address in ids.values() for ids in route.brokers.values()):
                self._renewal(topic)

    async def renew(self, topic: str) -> None:
        """Ask for the route of `topic` again, no more often than RenewalPace permits, and wait for the answer.

        When the name server does not answer or does not know the topic, the last route stays.
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
        wait_ms = self._pace.reserve(topic, monotonic_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        before = self._routes.get(topic)
        await self._refresh(topic)
        self._pace.asked(topic, monotonic_ms(), changed=self._routes.get(topic) != before)

    async def _refresh(self, topic: str) -> None:
        known = self._routes.get(topic)
        # An unknown topic keeps its last route: most often the name server has just restarted.
        queues = known.borrowed_queues if known is not None else 0
        try:
            await self._ask(topic, queues)
        except NoRoute:
            return
        except REQUEST_FAILURES as error:
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
            task.exception()  # marks the error as seen, also when the caller has timed out

    async def _question(self, topic: str, create_queues: int) -> TopicRoute:
        route = await self._read(topic, create_queues)
        before = self._routes.get(topic)
        if before != route:
            new_addresses = bool(broker_addresses([route]) - self.addresses())
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
    """The result of a shared task. When the task was cancelled and its caller was not, the client was closed."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if task.cancelled() and caller is not None and not caller.cancelling():
            raise ClientClosed("the client") from None
        raise
