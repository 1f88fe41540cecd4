"""What a Twinlog broker's status must look like before it is read, so that an odd one costs its own row only. No I/O.

Other members of the status are not checked. Views read a member without a default directly, so it must be there.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Shape(msgspec.Struct, rename="camel"):
    pass


class _Following(_Shape):
    state: str | None = None
    reason: str | None = None
    master_ha_address: str | None = None
    bytes_received: Natural = 0
    bytes_per_second: Long | None = None
    reconnects: Long = 0
    refusals: Long = 0


class _Replica(_Shape):
    identity: str | None
    observer: bool
    in_sync: bool
    lag_bytes: Natural | None
    lag_messages: Natural | None
    lag_messages_exact: bool
    lag_ms: Natural | None
    bytes_per_second: Long | None
    broker_id: Long | None = None
    acked: Long | None = None
    late: bool = False
    behind: bool = False


class _DataVersion(_Shape):
    counter: Long
    timestamp: Long
    state_version: Long = 0


class _Kind(_Shape):
    synced_ms: Natural | None
    changes: Natural
    failures: Natural
    bytes_received: Natural
    error: str
    version: _DataVersion | None = None


class _FailedTask(_Shape):
    paused: bool = False
    error: str = ""


class _Status(_Shape):
    log_start: Natural
    log_end: Natural
    role: str | None = None
    instance: str | None = None
    epoch: Long | None = None
    failover: bool = False
    now_ms: Natural | None = None
    flushed_end: Natural | None = None
    refused_connections: Natural = 0
    broker_id: Long = 0
    broker_name: str = ""
    cluster_name: str = ""
    master_address: str | None = None
    replicas: list[_Replica] = []
    following: _Following = msgspec.field(default_factory=_Following)
    metadata: dict[str, _Kind] = {}
    metadata_skipped: str | None = None
    failed_tasks: dict[str, _FailedTask] = {}


def checked_status(document: dict[str, Any]) -> dict[str, Any]:
    """The same document; ValueError names the member that is not what it should be."""
    try:
        msgspec.convert(document, _Status)
    except msgspec.ValidationError as error:
        raise ValueError(f"its status is not understood: {error}") from error
    return document
