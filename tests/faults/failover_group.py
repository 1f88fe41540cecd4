"""Three brokers of one name, an etcd and a name server: one of the brokers leads, whichever it is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.failover.etcd_server import start_etcd
from tests.faults.etcd_cluster import EtcdCluster
from tests.faults.group import Group, Place
from tests.faults.load import make_topic
from tests.interop.processes import Server
from tests.interop.replica_pair import until

from twinlog.failover.etcd import Etcd, EtcdError
from twinlog.failover.group_keys import GroupKeys
from twinlog.failover.records import Entry, History, Keys, decode_record

NAMES = ("a", "b", "c")


@dataclass
class FailoverGroup:
    """`group.brokers` by name; `etcd` may be killed and started again on its data."""

    group: Group
    home: Path
    etcd: Server
    more: dict[str, str] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def running(cls, home: Path, names: tuple[str, ...] = NAMES, **more: str) -> Iterator[FailoverGroup]:
        etcd = start_etcd(home / "etcd")
        conf = {"failoverEtcd": etcd.address, "slaveTimeout": "2500", **more}
        one = cls(Group(home, conf=conf), home, etcd)
        try:
            with one.group.running():
                one._start(names)
                yield one
        finally:
            one.etcd.kill()

    def _start(self, names: tuple[str, ...]) -> None:
        for number, name in enumerate(names, 1):
            self.group.start(name, "SLAVE", number, registered=False)
        make_topic(self.group.names.address, self.group.brokers[self.leader()].address)

    @property
    def endpoints(self) -> list[str]:
        return [self.etcd.address]

    def keys(self) -> Keys:
        return asyncio.run(self._keys().read())

    def history(self) -> list[History]:
        entries: list[Entry] = asyncio.run(self._keys().entries())[0]
        found = [decode_record(History, one.name, one.value) for one in entries if one.name.startswith("history/")]
        return sorted(found, key=lambda one: one.epoch)

    def leader(self, seconds: float = 60, other_than: str = "") -> str:
        """The name of the broker that leads, once one does."""
        found: list[str] = []

        def leads() -> bool:
            with contextlib.suppress(EtcdError):
                leader = self.keys().leader
                if leader is not None:
                    found[:] = [name for name, one in self.group.brokers.items() if one.address == leader.address]
            return bool(found) and found[0] != other_than

        until(leads, "a broker leads", seconds)
        return found[0]

    def in_sync(self, count: int, seconds: float = 60) -> None:
        """Wait until so many members are in sync."""

        def is_so() -> bool:
            with contextlib.suppress(EtcdError):
                found = self.keys().in_sync
                return found is not None and len(found.members) == count
            return False

        until(is_so, f"{count} brokers are in sync", seconds)

    def equal_logs(self) -> None:
        """Wait until all brokers have the same bytes."""
        first, *others = self.group.brokers
        for other in others:
            self.group.logs_equal(60, first, other)

    def restart(self, name: str) -> None:
        self.group.restart(name, registered=False)

    def restart_etcd(self) -> None:
        self.etcd = start_etcd(self.home / "etcd", self.etcd.port)

    def kill_leader(self) -> tuple[str, float]:
        """(its name, when)."""
        name = self.leader()
        self.group.brokers[name].kill()
        return name, time.monotonic()

    def _keys(self) -> GroupKeys:
        return GroupKeys(Etcd(self.endpoints, timeout_s=3), "/twinlog", "DefaultCluster", "broker-a")


@dataclass
class ThreeEtcds(FailoverGroup):
    """A group whose etcd has three members; every process may have a place of its own."""

    etcds: EtcdCluster = field(kw_only=True)

    @classmethod
    @contextlib.contextmanager
    def at(cls, home: Path, places: Mapping[str, Place] = {}, **more: str) -> Iterator[ThreeEtcds]:
        with EtcdCluster.running(home / "etcd", places) as etcds:
            conf = {"failoverEtcd": ",".join(etcds.endpoints), "slaveTimeout": "2500", **more}
            first = next(iter(etcds.servers.values()))
            one = cls(Group(home, places=dict(places), conf=conf), home, first, etcds=etcds)
            with one.group.running():
                one._start(NAMES)
                one.in_sync(3)
                yield one

    @property
    def endpoints(self) -> list[str]:
        return self.etcds.endpoints
