"""Values that go into the route table and come out of it: registrations, leaving brokers, notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinlog.nameserver.registration_body import RegisteredTopic
from twinlog.wire.bodies import DataVersion

LiveKey = tuple[str, str]  # cluster, address


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker registers; `topics` None means the same body as last time (see `RouteTable.holds`)."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    ha_address: str | None = None
    silence_ms_max: int | None = None
    acting_master: bool | None = None  # None: a 4.x broker, which does not know the mode
    zone: str | None = None
    topics: Mapping[str, RegisteredTopic] | None = field(default_factory=dict[str, RegisteredTopic])
    version: DataVersion = field(default_factory=DataVersion)
    mappings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    without_route: frozenset[str] = frozenset()  # those of `topics` that have more queues than clients can use
    filter_servers: list[str] | None = None
    connection: object = None
    host: str = ""  # from which the registration came
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
    """The smallest id among the brokers of one name changed; `receivers` are to be notified."""

    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    receivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The result of a registration; the addresses are those of the master, for a replica of a live one."""

    master_address: str | None = None
    master_ha_address: str | None = None
    notice: MinBrokerIdNotice | None = None
    left_out: tuple[str, ...] = ()  # topics that the table has no room for


@dataclass(slots=True)
class RegisteredBroker:
    """A registered broker: when it was last heard, and what its last registration brought."""

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
    host: str = ""
