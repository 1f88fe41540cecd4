"""A name server and the brokers of one name as processes, of Twinlog or of Java RocketMQ, which a test may hurt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.checker import Verdict, judge
from tests.faults.load import TOPIC, Load, make_topic, read_all
from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.replica_pair import SEGMENT, log_end, same_logs, until
from tests.interop.twinlog_servers import Twinlog

from twinlog.client.sync import Admin

TWINLOG, JAVA = "twinlog", "java"
CONF = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "slaveReadEnable": "true",
    "inSyncReplicas": "2",
    "slaveTimeout": "10000",  # a replica that was not given a core for 3 s is not a lost one
    "messageDelayLevel": "1s 2s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "adminRequestsFrom": "*",  # the test is on another machine, as far as brokers in namespaces see
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferCountOnMessageInDisk": "1000",
    "maxTransferBytesOnMessageInMemory": str(1 << 20),
    "maxTransferBytesOnMessageInDisk": str(1 << 20),
}


@dataclass(frozen=True)
class Place:
    """Where a process runs: on this machine's loopback, unless a namespace or a shim says otherwise."""

    before: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """Brokers by name ("master", "replica"); each can be killed and started again on its store."""

    home: Path
    side: str = TWINLOG
    places: dict[str, Place] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)  # of all brokers
    own_conf: dict[str, dict[str, str]] = field(default_factory=dict)  # of one broker, by name
    brokers: dict[str, Broker] = field(default_factory=dict)
    _keys: dict[str, dict[str, str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[Group]:
        """With a name server; whatever runs in the end is killed."""
        self.start_names()
        try:
            yield self
        finally:
            for server in (*self.brokers.values(), self.names):
                server.kill()

    def start_names(self, port: int = 0) -> None:
        self.names: NameServer = self._maker("names").name_server(self.home / "names", port=port)

    def start(self, name: str, role: str, broker_id: int, *, registered: bool = True, **more: str) -> Broker:
        self._keys[name] = {**CONF, **self.conf, "brokerRole": role, "brokerId": str(broker_id), **more}
        self._keys[name] |= self.own_conf.get(name, {})
        return self._start(name, 0, registered)

    def start_pair(self, role: str = "SYNC_MASTER", **more: str) -> None:
        """A master and a replica that follows it, with the topic of the load."""
        self.start("master", role, 0, **more)
        self.start("replica", "SLAVE", 1, **more)
        make_topic(self.names.address, self.master.address)
        self.joined()

    def restart(self, name: str, *, registered: bool = True) -> Broker:
        """Start a broker that has ended again, on the same store and port."""
        self.brokers[name].kill()
        return self._start(name, self.brokers[name].port, registered)

    def change_conf(self, name: str, **keys: str) -> None:
        """What the next start of this broker reads."""
        self._keys[name] |= keys

    @property
    def master(self) -> Broker:
        return self.brokers["master"]

    @property
    def replica(self) -> Broker:
        return self.brokers["replica"]

    def joined(self, seconds: float = 60) -> None:
        """Return once a send is acknowledged, which on a SYNC master takes a replica, and both logs are equal."""
        load = Load(self.names.address, seed=0, producers=1, topic="Joined", direct=self.master.address)
        with load.running():
            load.go_on(1, seconds)
        self.logs_equal(seconds)

    def knows_topic(self, name: str, topic: str = TOPIC, seconds: float = 60) -> None:
        """Return once a replica has the topic's configuration, without which it could not lead."""
        with Admin(self.names.address) as admin:
            table = lambda: admin.topic_configs(self.brokers[name].address).topic_config_table  # noqa: E731
            until(lambda: topic in table(), f"{name} has the topic", seconds)

    def logs_equal(self, seconds: float = 60, one: str = "master", other: str = "replica") -> None:
        stores = self.brokers[one].store, self.brokers[other].store
        until(lambda: log_end(stores[0]) == log_end(stores[1]), f"{one} and {other} end at the same offset", seconds)
        until(lambda: same_logs(*stores), f"the logs of {one} and {other} have the same bytes", 10)

    def judge(self, load: Load, broker: str = "master", seconds: float = 30) -> Verdict:
        """The verdict on what this broker gives; it may still have to learn of topics, or to dispatch."""
        verdicts: list[Verdict] = []

        def is_complete() -> bool:
            verdicts.append(judge(load.history, read_all(self.brokers[broker].address, load.producers, load.topic)))
            return not verdicts[-1].lost

        with contextlib.suppress(AssertionError):
            until(is_complete, "all is readable", seconds)
        return verdicts[-1]

    def replication(self, name: str) -> dict[str, Any]:
        with Admin(self.names.address) as admin:
            return admin.replication_status(self.brokers[name].address) or {}

    def _start(self, name: str, port: int, registered: bool) -> Broker:
        maker = self._maker(name)
        names = self.names.address
        broker = maker.broker(self.home / name, names, port=port, registered=registered, **self._keys[name])
        self.brokers[name] = broker
        return broker

    def _maker(self, name: str) -> Twinlog | JavaRocketmq:
        place = self.places.get(name, Place())
        kind = Twinlog if self.side == TWINLOG else JavaRocketmq
        return kind(before=place.before, env=place.env, host=place.host)
