"""What was collected of one broker in one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinlog.observe.groups.group_progress import Members, Progress
from twinlog.observe.topics import TopicOnBroker

TopicGroup = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """Where a broker stands in its cluster."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """One consumer's own numbers about one topic."""

    address: str
    client_id: str
    group: str
    topic: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MinuteRate:
    """Growth over the last minute, a second."""

    messages: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """All of it. The members after `runtime` are empty for a replica: its master has the same topics and groups."""

    place: BrokerPlace
    taken_ms: int
    runtime: Mapping[str, str]
    permission: int | None = None
    put_tps: float | None = None
    get_tps: float | None = None
    topic_count: int = 0
    group_count: int = 0
    topics: tuple[TopicOnBroker, ...] = ()
    topic_rates: Mapping[str, MinuteRate] = field(default_factory=dict)
    progress: tuple[Progress, ...] = ()
    get_bytes: Mapping[TopicGroup, float] = field(default_factory=dict)  # bytes a second
    send_backs: Mapping[TopicGroup, float] = field(default_factory=dict)  # in the last minute
    waits_ms: Mapping[TopicGroup, int] = field(default_factory=dict)  # age of the oldest message not consumed
    consumed_total: Mapping[TopicGroup, int] = field(default_factory=dict)  # since the exporter began
    members: Mapping[str, Members] = field(default_factory=dict)
    clients: tuple[ClientStatus, ...] = ()
    producers: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)  # (language, version) each
