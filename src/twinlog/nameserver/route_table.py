"""Who serves which topic: all routing state of a name server, and how it changes, without I/O.

    topics    topic -> broker name -> queue counts and permissions
    brokers   broker name -> cluster, and the address behind each broker id (0 is the master)
    clusters  cluster -> broker names
    live      (cluster, address) -> when it was last heard, its version of the topics, its connection

Routes come from brokers: each registration carries topics, and a broker that closes its connection or stays silent
too long is removed. Connections are opaque here; they are only compared. `routes` reads the table for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from twinlog.nameserver.errors import RegistrationRefused
from twinlog.nameserver.registration import (
    Identity,
    LiveKey,
    MinBrokerIdNotice,
    Registered,
    RegisteredBroker,
    Registration,
)
from twinlog.wire.bodies import BrokerData, DataVersion, QueueData
from twinlog.wire.codes import MASTER_ID
from twinlog.wire.values.topic_bits import READ_WRITE, WRITE

SILENCE_MS_MAX = 120_000


class RouteTable:
    """Invariant: a broker name is in `brokers` exactly while it has an address."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.live: dict[LiveKey, RegisteredBroker] = {}
        self.filter_servers: dict[LiveKey, list[str]] = {}
        self.mappings: dict[str, dict[str, Any]] = {}
        self._removals = 0  # topics removed by an operator so far; they come back with the next registration

    # -- registration --------------------------------------------------------------------------

    def holds(self, cluster: str, broker_name: str, address: str, broker_id: int, digest: bytes) -> bool:
        """Whether a body with this digest would change nothing, so that it need not be read."""
        found = self.live.get((cluster, address))
        broker = self.brokers.get(broker_name)
        if found is None or broker is None or broker.broker_addrs.get(broker_id) != address:
            return False
        takes = broker_id == min(broker.broker_addrs)
        return (found.digest, found.removals) == (digest, self._removals) and (found.took_topics or not takes)

    def holders(self, new: Registration) -> list[tuple[LiveKey, RegisteredBroker]]:
        """The brokers of other connections that would lose their id, their address or their replicas by `new`."""
        broker = self.brokers.get(new.broker_name)
        held = broker.broker_addrs.get(new.broker_id) if broker is not None else None
        return [
            (key, one)
            for key, one in self.live.items()
            if one.connection is not new.connection
            and (
                (key[1] == new.address and not _is_same(key, one, new))
                or (key[1] == held != new.address and one.broker_name == new.broker_name)
            )
        ]

    def holders_of(self, address: str, connection: object) -> list[tuple[LiveKey, RegisteredBroker]]:
        """The brokers that registered this address over another connection."""
        return [(key, one) for key, one in self.live.items() if key[1] == address and one.connection is not connection]

    def register(
        self, new: Registration, now_ms: int, *, complete: bool = False, topics_max: int | None = None
    ) -> Registered:
        """Adopt a registration. `complete`: topics that a master leaves out are removed.

        New topics are taken while the table has fewer than `topics_max`.
        """
        key = (new.cluster, new.address)
        known = self.brokers.get(new.broker_name)
        addresses = dict(known.broker_addrs) if known is not None else {}
        gained_min = bool(addresses) and new.broker_id < min(addresses)
        # One address has one id: a replica that became master leaves its old id.
        addresses = {i: a for i, a in addresses.items() if a != new.address or i == new.broker_id}
        holder = addresses.get(new.broker_id)
        if holder is not None and holder != new.address and self._is_newer((new.cluster, holder), new.version):
            self.live.pop(key, None)
            return Registered()
        if holder is None and new.topics is not None and len(new.topics) == 1:
            # One topic is an increment, and there is nothing yet to add it to.
            raise RegistrationRefused("register broker failed")
        broker = self._adopt_broker(new, {**addresses, new.broker_id: new.address})
        is_prime_replica = new.acting_master is not None and new.broker_id == min(broker.broker_addrs) != MASTER_ID
        takes_topics = new.broker_id == MASTER_ID or is_prime_replica
        previous = self.live.get(key)
        version = new.version if new.topics is not None or previous is None else previous.version
        left_out: tuple[str, ...] = ()
        if takes_topics and new.topics is not None:
            changed = holder is None or previous is None or previous.version != new.version
            read_only = is_prime_replica and broker.enable_acting_master
            left_out = self._take_topics(
                new, changed=changed, read_only=read_only, complete=complete, topics_max=topics_max
            )
        silence = SILENCE_MS_MAX if new.silence_ms_max is None else new.silence_ms_max
        self.live[key] = RegisteredBroker(
            new.broker_name,
            new.broker_id,
            now_ms,
            silence,
            version,
            new.connection,
            new.ha_address,
            b"" if left_out else new.digest,  # the same body may find room next time
            takes_topics,
            self._removals,
            new.host,
        )
        if new.filter_servers is not None:
            self.filter_servers.pop(key, None)
            if new.filter_servers:
                self.filter_servers[key] = list(new.filter_servers)
        notice = _notice(broker.broker_addrs, None, new.ha_address) if gained_min else None
        return replace(self._answer(new, broker, notice), left_out=left_out)

    def _is_newer(self, holder: LiveKey, version: DataVersion) -> bool:
        found = self.live.get(holder)
        return found is not None and found.version.state_version > version.state_version

    def _adopt_broker(self, new: Registration, addresses: dict[int, str]) -> BrokerData:
        broker = self.brokers.get(new.broker_name)
        if broker is None:
            broker = BrokerData(cluster=new.cluster, broker_name=new.broker_name)
            self.brokers[new.broker_name] = broker
        self.clusters.setdefault(new.cluster, {})[new.broker_name] = None
        broker.enable_acting_master = bool(new.acting_master)
        broker.zone_name = new.zone
        broker.broker_addrs = dict(sorted(addresses.items()))
        return broker

    def _take_topics(
        self, new: Registration, *, changed: bool, read_only: bool, complete: bool, topics_max: int | None
    ) -> tuple[str, ...]:
        """The topics there was no room for."""
        left_out: list[str] = []
        name, topics = new.broker_name, new.topics or {}
        if complete and not new.mappings:
            for topic in [topic for topic, queues in self.topics.items() if name in queues and topic not in topics]:
                self._remove(topic, (name,))
        for topic in new.without_route:
            self._remove(topic, (name,))
        for topic, config in topics.items():
            if topic in new.without_route:
                continue
            if _is_full(self.topics, topic, topics_max):
                left_out.append(topic)
                continue
            queues = self.topics.setdefault(topic, {})
            if changed or name not in queues:
                queues[name] = QueueData(
                    broker_name=name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm & ~WRITE if read_only else config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
        if changed:
            for topic, mapping in new.mappings.items():
                owner = cast(Mapping[str, Any], mapping).get("bname") if isinstance(mapping, Mapping) else None
                if not _is_full(self.mappings, topic, topics_max):
                    self.mappings.setdefault(topic, {})[owner or name] = mapping
        return tuple(left_out)

    def _answer(self, new: Registration, broker: BrokerData, notice: MinBrokerIdNotice | None) -> Registered:
        master_address = broker.broker_addrs.get(MASTER_ID)
        if new.broker_id == MASTER_ID or master_address is None:
            return Registered(notice=notice)
        master = self.live.get((new.cluster, master_address))
        return (
            Registered(master_address, master.ha_address, notice) if master is not None else Registered(notice=notice)
        )

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """The broker was heard, without a registration."""
        if (found := self.live.get((cluster, address))) is not None:
            found.heard_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        found = self.live.get((cluster, address))
        return found.version if found is not None else None

    # -- leaving -------------------------------------------------------------------------------

    def unregister(self, leaving: Iterable[Identity]) -> list[MinBrokerIdNotice]:
        """Remove brokers; with the last address of a name its topics are removed."""
        gone: set[str] = set()
        reduced: set[str] = set()
        notices: dict[str, MinBrokerIdNotice | None] = {}
        for one in leaving:
            self.live.pop((one.cluster, one.address), None)
            self.filter_servers.pop((one.cluster, one.address), None)
            broker = self.brokers.get(one.broker_name)
            if broker is None:
                continue
            lost_min = bool(broker.broker_addrs) and one.broker_id == min(broker.broker_addrs)
            broker.broker_addrs = {i: a for i, a in broker.broker_addrs.items() if a != one.address}
            if broker.broker_addrs:
                reduced.add(one.broker_name)
                if lost_min:
                    notices[one.broker_name] = _notice(broker.broker_addrs, one.address, None)
            else:
                gone.add(one.broker_name)
                self._remove_broker(broker)
        self._remove_topics_of(gone, reduced - gone)
        return [notice for name, notice in notices.items() if notice is not None and name not in gone]

    def registered_over(self, connection: object) -> list[Identity]:
        """The brokers whose last registration came over this connection."""
        return [self._identity(key, one) for key, one in self.live.items() if one.connection is connection]

    def names_of(self, connection: object) -> set[str]:
        """The names of the brokers that registered over this connection."""
        return {one.broker_name for one in self.live.values() if one.connection is connection}

    def silent(self, now_ms: int) -> list[tuple[Identity, object]]:
        """The brokers that were not heard for too long, with their connections."""
        return [
            (self._identity(key, one), one.connection)
            for key, one in self.live.items()
            if one.heard_ms + one.silence_ms_max < now_ms
        ]

    def _identity(self, key: LiveKey, live: RegisteredBroker) -> Identity:
        return Identity(key[0], live.broker_name, key[1], live.broker_id)

    def _remove_broker(self, broker: BrokerData) -> None:
        del self.brokers[broker.broker_name]
        for cluster in [cluster for cluster, names in self.clusters.items() if broker.broker_name in names]:
            del self.clusters[cluster][broker.broker_name]
            if not self.clusters[cluster]:
                del self.clusters[cluster]

    def _remove_topics_of(self, gone: set[str], reduced: set[str]) -> None:
        without_master = {name for name in reduced if self._lost_its_master(name)}
        if not gone and not without_master:
            return
        for topic in list(self.topics):
            queues = self.topics[topic]
            for name in without_master & queues.keys():
                queues[name].perm &= ~WRITE
            if gone & queues.keys():
                self._remove(topic, gone)

    def _lost_its_master(self, name: str) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and broker.enable_acting_master and MASTER_ID not in broker.broker_addrs

    def _remove(self, topic: str, names: Iterable[str]) -> None:
        for table in (self.topics, self.mappings):
            rows = table.get(topic)
            if rows is not None:
                for name in names:
                    rows.pop(name, None)
                if not rows:
                    del table[topic]

    # -- an operator's changes -----------------------------------------------------------------

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add a topic's queues; nothing happens when one of the brokers is unknown."""
        added = {queue.broker_name: queue for queue in queues}
        if not added or not added.keys() <= self.brokers.keys():
            return False
        self.topics.setdefault(topic, {}).update(added)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, or its part in one cluster; a broker that still has it registers it again."""
        names = self.topics.get(topic, {}).keys() if cluster is None else self.clusters.get(cluster, {}).keys()
        self._remove(topic, list(names))
        self._removals += 1

    def wipe_write_permission(self, broker_name: str) -> int:
        """Number of topics that lost the permission on this broker."""
        return self._set_permissions(broker_name, lambda perm: perm & ~WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        # Java: the permission becomes exactly read and write, so TBW102 loses its inherit bit.
        return self._set_permissions(broker_name, lambda perm: READ_WRITE)

    def _set_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        found = [queues[broker_name] for queues in self.topics.values() if broker_name in queues]
        for queue in found:
            queue.perm = change(queue.perm)
        return len(found)


def _is_same(key: LiveKey, held: RegisteredBroker, new: Registration) -> bool:
    """Whether a host registers again what it has registered: it may have two connections for a while."""
    known = (key[0], held.broker_name, held.broker_id, held.ha_address, held.host)
    return known == (new.cluster, new.broker_name, new.broker_id, new.ha_address, new.host)


def _is_full(table: Mapping[str, Any], topic: str, topics_max: int | None) -> bool:
    return topics_max is not None and len(table) >= topics_max and topic not in table


def _notice(addresses: Mapping[int, str], offline: str | None, ha_address: str | None) -> MinBrokerIdNotice:
    smallest = min(addresses)
    everyone = offline is not None or len(addresses) == 1
    receivers = tuple(address for broker_id, address in addresses.items() if everyone or broker_id != smallest)
    return MinBrokerIdNotice(smallest, addresses[smallest], offline, ha_address, receivers)
