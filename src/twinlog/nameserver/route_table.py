"""Who serves which topic: all routing state of a name server, and every decision about it, without I/O.

    topics    topic -> broker name -> queue counts and permissions
    brokers   broker name -> cluster, and the address behind each broker id (0 is the master)
    clusters  cluster -> broker names
    live      (cluster, address) -> when it last spoke, its version of the topics, its connection

Brokers tell, nobody else does: each registration carries topics, and a broker that closes its connection or stays
silent too long is taken out again. Connections are opaque here; they are only compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twinlog.nameserver.errors import RegistrationRefused
from twinlog.nameserver.registration import RegisteredTopic
from twinlog.wire.bodies import BrokerData, ClusterInfo, DataVersion, QueueData, TopicRouteData

MASTER_ID = 0
PERM_WRITE, PERM_READ = 2, 4
SILENCE_MS_MAX = 120_000
SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_FLAG_UNIT, _FLAG_UNIT_SUB = 1, 2

LiveKey = tuple[str, str]  # cluster, address


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says about itself; `topics` None means the same body as last time (see `holds`)."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    ha_address: str | None = None
    silence_ms_max: int | None = None
    acting_master: bool | None = None  # None: a 4.x broker, which does not know the mode
    zone: str | None = None
    topics: Mapping[str, RegisteredTopic] | None = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)
    mappings: Mapping[str, Any] = field(default_factory=dict)
    without_route: frozenset[str] = frozenset()  # of the topics: those that no client could hold
    filter_servers: list[str] | None = None
    connection: object = None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Identity:
    """One broker as an unregistration names it."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class MinBrokerIdNotice:
    """The smallest id of a broker group changed; `receivers` are to be told."""

    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    receivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """What the broker is told: its master's addresses if it is a replica of a live one."""

    master_address: str | None = None
    master_ha_address: str | None = None
    notice: MinBrokerIdNotice | None = None
    left_out: tuple[str, ...] = ()  # topics that the table has no room for


@dataclass(slots=True)
class LiveBroker:
    broker_name: str
    broker_id: int
    heard_ms: int
    silence_ms_max: int
    version: DataVersion
    connection: object
    ha_address: str | None
    digest: bytes
    took_topics: bool
    removals: int


class RouteTable:
    """Invariant: a broker name is in `brokers` exactly while it has an address."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.live: dict[LiveKey, LiveBroker] = {}
        self._filter_servers: dict[LiveKey, list[str]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}
        self._removals = 0  # topics removed by an operator so far; they come back with the next registration

    # -- registration --------------------------------------------------------------------------

    def holds(self, cluster: str, broker_name: str, address: str, broker_id: int, digest: bytes) -> bool:
        """Whether a body with this digest would change nothing, so that reading it can be saved."""
        found = self.live.get((cluster, address))
        broker = self.brokers.get(broker_name)
        if found is None or broker is None or broker.broker_addrs.get(broker_id) != address:
            return False
        takes = broker_id == min(broker.broker_addrs)
        return (found.digest, found.removals) == (digest, self._removals) and (found.took_topics or not takes)

    def register(
        self, said: Registration, now_ms: int, *, complete: bool = False, topics_max: int | None = None
    ) -> Registered:
        """Take a registration over. `complete`: topics that a master leaves out are gone.

        Of new topics only so many are taken that the table has `topics_max`.
        """
        key = (said.cluster, said.address)
        known = self.brokers.get(said.broker_name)
        addresses = dict(known.broker_addrs) if known is not None else {}
        gained_min = bool(addresses) and said.broker_id < min(addresses)
        # One address has one id: a replica that became master leaves its old id.
        addresses = {i: a for i, a in addresses.items() if a != said.address or i == said.broker_id}
        holder = addresses.get(said.broker_id)
        if holder is not None and holder != said.address and self._is_newer((said.cluster, holder), said.version):
            self.live.pop(key, None)
            return Registered()
        if holder is None and said.topics is not None and len(said.topics) == 1:
            # One topic is an increment, and there is nothing yet to add it to.
            raise RegistrationRefused("register broker failed")
        broker = self._adopt_broker(said, {**addresses, said.broker_id: said.address})
        is_prime_replica = said.acting_master is not None and said.broker_id == min(broker.broker_addrs) != MASTER_ID
        takes_topics = said.broker_id == MASTER_ID or is_prime_replica
        previous = self.live.get(key)
        version = said.version if said.topics is not None or previous is None else previous.version
        left_out: tuple[str, ...] = ()
        if takes_topics and said.topics is not None:
            changed = holder is None or previous is None or previous.version != said.version
            read_only = is_prime_replica and broker.enable_acting_master
            left_out = self._take_topics(
                said, changed=changed, read_only=read_only, complete=complete, topics_max=topics_max
            )
        silence = SILENCE_MS_MAX if said.silence_ms_max is None else said.silence_ms_max
        self.live[key] = LiveBroker(
            said.broker_name,
            said.broker_id,
            now_ms,
            silence,
            version,
            said.connection,
            said.ha_address,
            b"" if left_out else said.digest,  # the same body may find room next time
            takes_topics,
            self._removals,
        )
        if said.filter_servers is not None:
            self._filter_servers.pop(key, None)
            if said.filter_servers:
                self._filter_servers[key] = list(said.filter_servers)
        notice = _notice(broker.broker_addrs, None, said.ha_address) if gained_min else None
        return replace(self._answer(said, broker, notice), left_out=left_out)

    def _is_newer(self, holder: LiveKey, version: DataVersion) -> bool:
        found = self.live.get(holder)
        return found is not None and found.version.state_version > version.state_version

    def _adopt_broker(self, said: Registration, addresses: dict[int, str]) -> BrokerData:
        broker = self.brokers.get(said.broker_name)
        if broker is None:
            broker = BrokerData(cluster=said.cluster, broker_name=said.broker_name)
            self.brokers[said.broker_name] = broker
        self.clusters.setdefault(said.cluster, {})[said.broker_name] = None
        broker.enable_acting_master = bool(said.acting_master)
        broker.zone_name = said.zone
        broker.broker_addrs = dict(sorted(addresses.items()))
        return broker

    def _take_topics(
        self, said: Registration, *, changed: bool, read_only: bool, complete: bool, topics_max: int | None
    ) -> tuple[str, ...]:
        """The topics there was no room for."""
        left_out: list[str] = []
        name, topics = said.broker_name, said.topics or {}
        if complete and not said.mappings:
            for topic in [topic for topic, queues in self.topics.items() if name in queues and topic not in topics]:
                self._remove(topic, (name,))
        for topic in said.without_route:
            self._remove(topic, (name,))
        for topic, config in topics.items():
            if topic in said.without_route:
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
                    perm=config.perm & ~PERM_WRITE if read_only else config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
        if changed:
            for topic, mapping in said.mappings.items():
                owner = mapping.get("bname") if isinstance(mapping, Mapping) else None
                if not _is_full(self._mappings, topic, topics_max):
                    self._mappings.setdefault(topic, {})[owner or name] = mapping
        return tuple(left_out)

    def _answer(self, said: Registration, broker: BrokerData, notice: MinBrokerIdNotice | None) -> Registered:
        master_address = broker.broker_addrs.get(MASTER_ID)
        if said.broker_id == MASTER_ID or master_address is None:
            return Registered(notice=notice)
        master = self.live.get((said.cluster, master_address))
        return (
            Registered(master_address, master.ha_address, notice) if master is not None else Registered(notice=notice)
        )

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """A sign of life outside of a registration."""
        if (found := self.live.get((cluster, address))) is not None:
            found.heard_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        found = self.live.get((cluster, address))
        return found.version if found is not None else None

    # -- leaving -------------------------------------------------------------------------------

    def unregister(self, leaving: Iterable[Identity]) -> list[MinBrokerIdNotice]:
        """Take brokers out; with the last address of a name go its topics."""
        gone: set[str] = set()
        reduced: set[str] = set()
        notices: dict[str, MinBrokerIdNotice | None] = {}
        for one in leaving:
            self.live.pop((one.cluster, one.address), None)
            self._filter_servers.pop((one.cluster, one.address), None)
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
                self._forget_broker(broker)
        self._forget_topics(gone, reduced - gone)
        return [notice for name, notice in notices.items() if notice is not None and name not in gone]

    def left_with(self, connection: object) -> list[Identity]:
        """The brokers whose last registration came over this connection."""
        return [self._identity(key, one) for key, one in self.live.items() if one.connection is connection]

    def silent(self, now_ms: int) -> list[tuple[Identity, object]]:
        """The brokers that were not heard for too long, with their connections."""
        return [
            (self._identity(key, one), one.connection)
            for key, one in self.live.items()
            if one.heard_ms + one.silence_ms_max < now_ms
        ]

    def _identity(self, key: LiveKey, live: LiveBroker) -> Identity:
        return Identity(key[0], live.broker_name, key[1], live.broker_id)

    def _forget_broker(self, broker: BrokerData) -> None:
        del self.brokers[broker.broker_name]
        for cluster in [cluster for cluster, names in self.clusters.items() if broker.broker_name in names]:
            del self.clusters[cluster][broker.broker_name]
            if not self.clusters[cluster]:
                del self.clusters[cluster]

    def _forget_topics(self, gone: set[str], reduced: set[str]) -> None:
        headless = {name for name in reduced if self._has_lost_its_master(name)}
        if not gone and not headless:
            return
        for topic in list(self.topics):
            queues = self.topics[topic]
            for name in headless & queues.keys():
                queues[name].perm &= ~PERM_WRITE
            if gone & queues.keys():
                self._remove(topic, gone)

    def _has_lost_its_master(self, name: str) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and broker.enable_acting_master and MASTER_ID not in broker.broker_addrs

    def _remove(self, topic: str, names: Iterable[str]) -> None:
        for table in (self.topics, self._mappings):
            rows = table.get(topic)
            if rows is not None:
                for name in names:
                    rows.pop(name, None)
                if not rows:
                    del table[topic]

    # -- routes --------------------------------------------------------------------------------

    def route(self, topic: str, *, acting_masters: bool = False) -> TopicRouteData | None:
        """Brokers and queues of a topic; None when no broker has it."""
        queues = self.topics.get(topic, {})
        brokers = [_copy(self.brokers[name]) for name in queues if name in self.brokers]
        if not brokers:
            return None
        if acting_masters and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX):
            for broker in brokers:
                _present_acting_master(broker, queues[broker.broker_name])
        keys = [(broker.cluster, address) for broker in brokers for address in broker.broker_addrs.values()]
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=brokers,
            filter_server_table={key[1]: self._filter_servers[key] for key in keys if key in self._filter_servers},
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table=self.brokers,
            cluster_addr_table={cluster: list(names) for cluster, names in self.clusters.items()},
        )

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self.clusters.get(cluster, {}).keys()
        return [topic for topic, queues in self.topics.items() if names & queues.keys()]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, which are topics too, and the address of some broker that knows more."""
        topics = [name for cluster, names in self.clusters.items() for name in (cluster, *names)]
        addresses = (address for broker in self.brokers.values() for address in broker.broker_addrs.values())
        return topics, next(addresses, None)

    def unit_topics(self) -> list[str]:
        return self._topics_flagged(lambda flag: bool(flag & _FLAG_UNIT))

    def unit_subscription_topics(self) -> list[str]:
        return self._topics_flagged(lambda flag: bool(flag & _FLAG_UNIT_SUB))

    def unit_subscription_only_topics(self) -> list[str]:
        return self._topics_flagged(lambda flag: flag & (_FLAG_UNIT | _FLAG_UNIT_SUB) == _FLAG_UNIT_SUB)

    def _topics_flagged(self, matches: Any) -> list[str]:
        return [topic for topic, queues in self.topics.items() if matches(next(iter(queues.values())).topic_sys_flag)]

    # -- an operator's changes -----------------------------------------------------------------

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add a topic's queues; nothing happens when one of the brokers is unknown."""
        added = {queue.broker_name: queue for queue in queues}
        if not added or not added.keys() <= self.brokers.keys():
            return False
        self.topics.setdefault(topic, {}).update(added)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or its part in one cluster; a broker that still has it brings it back."""
        names = self.topics.get(topic, {}).keys() if cluster is None else self.clusters.get(cluster, {}).keys()
        self._remove(topic, list(names))
        self._removals += 1

    def wipe_write_permission(self, broker_name: str) -> int:
        """Number of topics that lost the permission on this broker."""
        return self._set_permissions(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        # Java: the permission becomes exactly read and write, so TBW102 loses its inherit bit.
        return self._set_permissions(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def _set_permissions(self, broker_name: str, change: Any) -> int:
        found = [queues[broker_name] for queues in self.topics.values() if broker_name in queues]
        for queue in found:
            queue.perm = change(queue.perm)
        return len(found)


def _is_full(table: Mapping[str, Any], topic: str, topics_max: int | None) -> bool:
    return topics_max is not None and len(table) >= topics_max and topic not in table


def keep_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Only the brokers of a zone, and those without a master, which must be readable from everywhere."""
    kept = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in kept}
    dropped = [broker for broker in route.broker_datas if broker.broker_name not in names]
    dropped_names = {broker.broker_name for broker in dropped}
    addresses = {address for broker in dropped for address in broker.broker_addrs.values()}
    return TopicRouteData(
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in dropped_names],
        broker_datas=kept,
        filter_server_table={a: servers for a, servers in route.filter_server_table.items() if a not in addresses},
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def _present_acting_master(broker: BrokerData, queue: QueueData) -> None:
    addresses = broker.broker_addrs
    if broker.enable_acting_master and MASTER_ID not in addresses and not queue.perm & PERM_WRITE:
        acting = min(addresses)
        others = {broker_id: address for broker_id, address in addresses.items() if broker_id != acting}
        broker.broker_addrs = {MASTER_ID: addresses[acting], **others}


def _notice(addresses: Mapping[int, str], offline: str | None, ha_address: str | None) -> MinBrokerIdNotice:
    smallest = min(addresses)
    everyone = offline is not None or len(addresses) == 1
    receivers = tuple(address for broker_id, address in addresses.items() if everyone or broker_id != smallest)
    return MinBrokerIdNotice(smallest, addresses[smallest], offline, ha_address, receivers)


def _copy(broker: BrokerData) -> BrokerData:
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_addrs=dict(sorted(broker.broker_addrs.items())),
        enable_acting_master=broker.enable_acting_master,
        zone_name=broker.zone_name,
    )
