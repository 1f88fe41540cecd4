"""One replica beside its master: lag, link, and each kind of metadata. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinlog.observe.cluster.broker_groups import LagFacts, Member
from twinlog.observe.cluster.health import Health
from twinlog.observe.units import time_text


@dataclass(frozen=True, slots=True)
class Version:
    """A data version of RocketMQ; master and replica have the same one when a kind is synchronised."""

    counter: int
    timestamp_ms: int
    state: int

    def __str__(self) -> str:
        return f"{self.counter} of {time_text(self.timestamp_ms)}"


@dataclass(frozen=True, slots=True)
class MetadataView:
    """How the synchronisation of one kind of metadata goes, as its replica says."""

    kind: str
    version: Version | None
    synced_ms: int | None
    changes: int  # rounds that changed something
    failures: int
    bytes_received: int
    error: str


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """None where nobody knows."""

    broker_id: int
    address: str
    kind: str
    state: str | None
    lag_bytes: int | None
    lag_messages: int | None
    lag_messages_exact: bool
    lag_ms: int | None
    bytes_per_second: float | None
    acked: int | None
    log_end: int | None
    in_sync: bool | None
    reconnects: int | None
    bytes_received: int | None
    metadata: tuple[MetadataView, ...]
    metadata_skipped: str  # why the last round asked no master
    health: Health


def replica_view(replica: Member, lag: LagFacts | None, health: Health) -> ReplicaView:
    lag, following = lag or LagFacts(), replica.document.get("following", {})
    return ReplicaView(
        broker_id=replica.broker_id,
        address=replica.address,
        kind=replica.kind,
        state=following.get("state"),
        lag_bytes=lag.bytes,
        lag_messages=lag.messages,
        lag_messages_exact=lag.messages_exact,
        lag_ms=lag.ms,
        bytes_per_second=following.get("bytesPerSecond", lag.bytes_per_second),
        acked=lag.acked,
        log_end=replica.log_end,
        in_sync=lag.in_sync,
        reconnects=following.get("reconnects"),
        bytes_received=following.get("bytesReceived"),
        metadata=tuple(_metadata_view(kind, one) for kind, one in replica.document.get("metadata", {}).items()),
        metadata_skipped=replica.document.get("metadataSkipped") or "",
        health=health,
    )


def version_of(document: dict[str, Any] | None) -> Version | None:
    """A data version as brokers spell it in JSON."""
    if not document:
        return None
    return Version(int(document["counter"]), int(document["timestamp"]), int(document.get("stateVersion", 0)))


def _metadata_view(kind: str, status: dict[str, Any]) -> MetadataView:
    return MetadataView(
        kind=kind,
        version=version_of(status.get("version")),
        synced_ms=status["syncedMs"] or None,
        changes=status["changes"],
        failures=status["failures"],
        bytes_received=status["bytesReceived"],
        error=status["error"],
    )
