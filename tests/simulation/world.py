"""Simulated time, one source of randomness, and a network that delays, loses and partitions.

Time is in milliseconds. Everything that happens is a call that was put into one queue; calls at the same time run in
the order in which they were put there. So a seed decides the whole history.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any


class World:
    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.tracing = tracing
        self.events = 0
        self.stopped = False
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._numbers), call, arguments))

    def run_until(self, end_ms: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms and not self.stopped:
            self.now, _, call, arguments = heapq.heappop(queue)
            self.events += 1
            call(*arguments)
        self.now = max(self.now, end_ms)

    def trace(self, who: str, text: str) -> None:
        if self.tracing:
            print(f"{self.now:9.1f} {who:6} {text}")


class Network:
    """Delays between two hosts; None: the bytes do not arrive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blocked: dict[tuple[str, str], int] = {}
        self.slow = 1.0
        self.loss = 0.0
        self.late = 0.01  # the share of what waits in some queue on its way

    def delay(self, source: str, target: str) -> float | None:
        rng = self._world.random
        if (source, target) in self._blocked or (self.loss and rng.random() < self.loss):
            return None
        delay = 0.5 + rng.expovariate(0.3)
        if rng.random() < self.late:
            delay += rng.uniform(50, 4000)
        return delay * self.slow

    def block(self, source: str, target: str, duration_ms: float) -> None:
        """One way; several blocks of one way may overlap."""
        pair = (source, target)
        self._blocked[pair] = self._blocked.get(pair, 0) + 1
        self._world.after(duration_ms, self._unblock, pair)

    def heal(self) -> None:
        self._blocked.clear()
        self.slow, self.loss, self.late = 1.0, 0.0, 0.001

    def _unblock(self, pair: tuple[str, str]) -> None:
        left = self._blocked.get(pair, 0) - 1
        if left > 0:
            self._blocked[pair] = left
        else:
            self._blocked.pop(pair, None)


class Wire:
    """One connection: bytes arrive in order or not at all. Whoever closes it lets the other end know, if it can."""

    def __init__(self, world: World, network: Network, ends: tuple[str, str]) -> None:
        self._world = world
        self._network = network
        self._ends = ends
        self._free_at = {ends[0]: 0.0, ends[1]: 0.0}
        self._broken = False
        self.closed: set[str] = set()

    def send(self, source: str, receive: Callable[..., None], *arguments: Any) -> None:
        """Call `receive` at the other end, after everything that was sent there before."""
        target = self._ends[1] if source == self._ends[0] else self._ends[0]
        if self._broken:
            return
        delay = self._network.delay(source, target)
        if delay is None:
            self._broken = True  # what follows a lost segment never arrives
            return
        at = max(self._free_at[target] + 0.001, self._world.now + delay)
        self._free_at[target] = at
        self._world.after(at - self._world.now, self._arrive, target, receive, arguments)

    def _arrive(self, target: str, receive: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if target not in self.closed:
            receive(*arguments)
