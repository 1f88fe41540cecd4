"""Which queue the next message goes to: round robin, away from brokers that have just failed."""

import itertools
import random
from collections.abc import Sequence

from twinlog.client.routing.routes import TopicRoute
from twinlog.wire.bodies import MessageQueue


class QueueChoice:
    """The round robin of one producer: its position in each topic, and the brokers to avoid.

    A failure belongs to an address: when a broker name gets a new master, its queues are chosen again at once.
    """

    def __init__(self, *, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._next: dict[str, itertools.count[int]] = {}
        self._avoided_until: dict[str, int] = {}

    def failed(self, address: str, until_ms: int) -> None:
        """Prefer brokers at other addresses until `until_ms`."""
        self._avoided_until[address] = until_ms

    def worked(self, address: str) -> None:
        self._avoided_until.pop(address, None)

    def choose(self, route: TopicRoute, now_ms: int, *, tried: Sequence[str] = ()) -> MessageQueue:
        """The next queue; brokers in `tried` and avoided ones only when there is no other."""
        queues = route.writable
        counter = self._next.get(route.topic)
        if counter is None:
            # A random start spreads many short-lived producers over the queues.
            counter = self._next[route.topic] = itertools.count(self._random.randrange(1 << 16))
        at = next(counter)
        if tried or self._avoided_until:
            for unwanted in (set(tried) | self._avoided(route, now_ms), set(tried)):
                wanted = [queue for queue in queues if queue.broker_name not in unwanted]
                if wanted:
                    return wanted[at % len(wanted)]
        return queues[at % len(queues)]

    def _avoided(self, route: TopicRoute, now_ms: int) -> set[str]:
        self._avoided_until = {at: until for at, until in self._avoided_until.items() if until > now_ms}
        return {name for name in route.brokers if route.master_of(name) in self._avoided_until}
