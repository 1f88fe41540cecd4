"""The request with which a Twinlog replica introduces itself to a Twinlog master, and the answer.

The replica sends it to the remoting port before it opens the HA port. The master answers with the bounds of its
own log and a pass, which the replica sends as the first word on the HA port. Java brokers do not take part.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloHeader:
    """The custom header of REPLICA_HELLO."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: int | None = None
    instance: str | None = None  # the same after a restart, different for each store directory
    log_start: int | None = None
    log_end: int | None = None
    segment_bytes: int | None = None
    observer: bool = False
    whole_history: bool = False
    master_epoch: int | None = None  # the highest that the replica has seen


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloAnswer:
    """The header of the answer."""

    pass_number: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    segment_bytes: int | None = None
    master_epoch: int | None = None
    awaits_replicas: bool = False  # its sends are answered after replicas have reported them
