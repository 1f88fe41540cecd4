"""Which queue the next message goes to: round robin, away from brokers that have just failed."""

import itertools
import random
from collections.abc import Sequence

from twinlog.wire.bodies import MessageQueue


class QueueChoice:
    """Remembers, for one producer, where it was in each topic and which brokers to leave alone."""

    def __init__(self, avoid_ms: int = 10_000, *, seed: int | None = None) -> None:
        self._avoid_ms = avoid_ms
        self._random = random.Random(seed)
        self._next: dict[str, itertools.count[int]] = {}
        self._avoided_until: dict[str, int] = {}

    def failed(self, broker_name: str, now_ms: int) -> None:
        self._avoided_until[broker_name] = now_ms + self._avoid_ms

    def worked(self, broker_name: str) -> None:
        self._avoided_until.pop(broker_name, None)

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], now_ms: int, *, tried: Sequence[str] = ()
    ) -> MessageQueue:
        """The next queue; brokers in `tried` and avoided ones only when there is no other."""
        counter = self._next.get(topic)
        if counter is None:
            # A random start spreads many short-lived producers over the queues.
            counter = self._next[topic] = itertools.count(self._random.randrange(1 << 16))
        at = next(counter)
        for unwanted in (set(tried) | self._avoided(now_ms), set(tried)):
            wanted = [queue for queue in queues if queue.broker_name not in unwanted]
            if wanted:
                return wanted[at % len(wanted)]
        return queues[at % len(queues)]

    def _avoided(self, now_ms: int) -> set[str]:
        return {name for name, until in self._avoided_until.items() if until > now_ms}
