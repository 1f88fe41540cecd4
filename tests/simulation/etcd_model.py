"""etcd as its clients see it: linearizable reads and transactions, leases, and answers that may be lost.

A lease ends at the earliest when its time is over since the last keepalive arrived; it may end later, and a pause of
etcd prolongs it. A request that was delayed is carried out when it arrives, however old it is.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tests.simulation.world import Network, World

from twinlog.failover.comparisons import CreatedAt, Delete, Put
from twinlog.failover.records import Entry
from twinlog.failover.transactions import Transaction

REQUEST_MS_MAX = 1_000.0
HOST = "etcd"
T = TypeVar("T")


class EtcdModel:
    def __init__(self, world: World, network: Network, lease_ms: int) -> None:
        self._world = world
        self._network = network
        self._lease_ms = lease_ms
        self._leases: dict[int, float] = {}  # when each may end
        self._numbers = itertools.count(1)
        self.is_up = True
        self.cluster = 1  # another one after all data were lost
        self.revision = 1
        self.entries: dict[str, Entry] = {}
        self._former: deque[tuple[float, list[Entry], int]] = deque(maxlen=12)  # what it had until some time ago
        self.stale = 0.0  # the share of reads that a member of etcd answers which is behind
        self.on_write: Callable[[], None] = lambda: None

    # -- what a client may ask for ---------------------------------------------------------------------------------

    def read(self) -> tuple[list[Entry], int, int]:
        """All keys, their revision, and the cluster."""
        if self.stale and self._former and self._world.random.random() < self.stale:
            _, entries, revision = self._world.random.choice(self._former)
            return entries, revision, self.cluster
        return list(self.entries.values()), self.revision, self.cluster

    def commit(self, wanted: Transaction) -> tuple[bool, int]:
        """Whether the transaction's comparisons held, and the revision after it."""
        for compare in wanted.compares:
            entry = self.entries.get(compare.key)
            found = 0 if entry is None else entry.created if isinstance(compare, CreatedAt) else entry.changed
            if found != compare.revision:
                return False, self.revision
        if any(isinstance(write, Put) and write.lease and write.lease not in self._leases for write in wanted.writes):
            return False, self.revision
        self._changes()
        for write in wanted.writes:
            self._write(write)
        self.on_write()
        return True, self.revision

    def grant(self) -> int:
        lease = next(self._numbers)
        self._leases[lease] = self._world.now + self._lease_ms
        self._world.after(self._lease_ms, self._expire, lease)
        return lease

    def keep_alive(self, lease: int) -> bool:
        if lease not in self._leases:
            return False
        self._leases[lease] = max(self._leases[lease], self._world.now + self._lease_ms)
        return True

    # -- what happens to it ----------------------------------------------------------------------------------------

    def go_down(self, duration_ms: float) -> None:
        self.is_up = False
        self._world.after(duration_ms, self.come_up)

    def come_up(self) -> None:
        if not self.is_up:
            self.is_up = True
            for lease in self._leases:  # a new leader of etcd gives every lease its whole time again
                self.keep_alive(lease)

    def wipe(self) -> None:
        """All data are lost."""
        self.entries.clear()
        self._leases.clear()
        self._former.clear()
        self.revision = 1
        self.cluster += 1

    def request(self, source: str, ask: Callable[[], T], answer: Callable[[T | None], None]) -> None:
        """Ask over the network; `answer` gets None if no answer came in time: then the outcome is unknown."""
        world, begun = self._world, self._world.now

        def arrive() -> None:
            if not self.is_up:
                give_up()
                return
            result = ask()
            back = self._network.delay(HOST, source)
            if back is None or world.now + back - begun > REQUEST_MS_MAX:
                give_up()
            else:
                world.after(back, answer, result)

        def give_up() -> None:
            world.after(max(0.0, begun + REQUEST_MS_MAX - world.now), answer, None)

        there = self._network.delay(source, HOST)
        if there is None:
            give_up()
            return
        if there > REQUEST_MS_MAX:
            give_up()
            world.after(there, self._carry_out_late, ask)
        else:
            world.after(there, arrive)

    def _carry_out_late(self, ask: Callable[[], object]) -> None:
        if self.is_up:
            ask()

    def _changes(self) -> None:
        self._former.append((self._world.now, list(self.entries.values()), self.revision))
        self.revision += 1

    def _write(self, write: Put | Delete) -> None:
        if isinstance(write, Delete):
            self.entries.pop(write.key, None)
            return
        old = self.entries.get(write.key)
        created = self.revision if old is None else old.created
        self.entries[write.key] = Entry(write.key, write.value, created, self.revision, write.lease)

    def _expire(self, lease: int) -> None:
        ends = self._leases.get(lease)
        if ends is None:
            return
        if not self.is_up or ends > self._world.now:
            self._world.after(max(100.0, ends - self._world.now), self._expire, lease)
            return
        if self._world.random.random() < 0.5:  # etcd looks for old leases now and then
            self._leases[lease] = self._world.now + self._world.random.uniform(0, 500)
            self._world.after(500, self._end_lease, lease)
            return
        self._end_lease(lease)

    def _end_lease(self, lease: int) -> None:
        ends = self._leases.get(lease)
        if ends is None:
            return
        if not self.is_up or ends > self._world.now:
            self._expire(lease)
            return
        del self._leases[lease]
        gone = [name for name, entry in self.entries.items() if entry.lease == lease]
        if gone:
            self._changes()
            for name in gone:
                del self.entries[name]
            self.on_write()
