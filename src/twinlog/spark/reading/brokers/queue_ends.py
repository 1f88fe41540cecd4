"""Where the queues of a running stream end, while some of their brokers may be away.

A queue whose broker is away stays at the stream's position, and the others go on: no row is lost or read twice. The
same holds for a queue of which a replica has less than was read before: only a master can show that a queue is shorter
now. A queue that was deleted is a loss, and a broker that is away for longer than `brokerWait` is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from twinlog.base.clock import monotonic_ms
from twinlog.client.errors import NoNameServer
from twinlog.spark.broker_wait import PAUSE_S_MAX, AwayBrokers
from twinlog.spark.cluster import AWAY, Cluster, by_broker
from twinlog.spark.offsets import Offsets
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.positions import find_queues_that_remain
from twinlog.wire.bodies import MessageQueue

_NOT_REGISTERED = "it is not registered at the name server"


class QueueEnds:
    """Reads the ends, and remembers which brokers are away. Holds no socket: a reader travels to the workers."""

    def __init__(self, options: ReadOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._away = AwayBrokers(options.cluster.broker_wait_ms)
        self._reported_losses: set[str] = set()

    def read(self, position: Offsets) -> tuple[Offsets, list[MessageQueue]]:
        """The end of each queue of `position`, and the queues that are new."""
        ends, new, _ = self._read(position)
        return {**position, **ends}, new

    def wait_for(self, position: Offsets) -> Offsets:
        """The ends of these queues; waits while their brokers are away."""
        left, found = dict(position), {}
        while left:
            ends, _, away = self._read(left)
            found |= {queue: ends.get(queue, at) for queue, at in left.items() if queue not in away}
            left = {queue: at for queue, at in left.items() if queue in away}
            if left:
                time.sleep(PAUSE_S_MAX)
        return found

    def begins(self, queues: list[MessageQueue]) -> Offsets:
        """The oldest offsets of those queues whose broker answers."""
        return _of_present(queues, self._cluster.min_offsets)[0]

    def _read(self, position: Offsets) -> tuple[Offsets, list[MessageQueue], set[MessageQueue]]:
        try:
            queues, absent = find_queues_that_remain(self._options, self._cluster, position, self._reported_losses)
        except NoNameServer as error:
            self._note({"and its name server": str(error)})
            return {}, [], set(position)
        ends, silent = _of_present([queue for queue in queues if queue in position], self._cluster.max_offsets)
        shorter = {queue: position[queue] for queue, end in ends.items() if end < position[queue]}
        if shorter and self._options.read_from != "master":
            found, masters_away = _of_present(shorter, Cluster(self._options.cluster).max_offsets)
            if self._options.read_from == "slave":  # what the replica does not have yet is left for a later batch
                found = {queue: min(end, shorter[queue]) for queue, end in found.items()}
            ends |= found
            ends = {queue: end for queue, end in ends.items() if queue not in shorter or queue in found}
            silent |= {name: f"{why}; its replica is behind" for name, why in masters_away.items()}
        self._note({**{queue.broker_name: _NOT_REGISTERED for queue in absent}, **silent})
        new = sorted(queue for queue in set(queues) - set(position) if queue.broker_name not in silent)
        away = absent | {queue for queue in position if queue.broker_name in silent}
        return ends, new, away

    def _note(self, away: dict[str, str]) -> None:
        self._away.note(away, monotonic_ms())


def _of_present(
    queues: Iterable[MessageQueue], ask: Callable[[Iterable[MessageQueue]], Offsets]
) -> tuple[Offsets, dict[str, str]]:
    """The offsets of the queues whose broker answers; the other brokers by name, with the reason."""
    found: Offsets = {}
    away: dict[str, str] = {}
    for name, asked in by_broker(queues).items():
        try:
            found |= ask(asked)
        except AWAY as error:
            away[name] = str(error)
    return found, away
