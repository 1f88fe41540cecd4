"""What load balancers and Kubernetes ask a broker over HTTP: /master, /replica?lag=, /health, /readiness.

200 means yes and 503 no; the body has the facts as JSON either way.

    /master        it is master, and may acknowledge sends now
    /replica       it follows a master; with lag=, it lacks at most so many bytes (a number, or one with kB, MB or GB)
    /health        the process runs: also while it recovers its log
    /readiness     it serves clients, as a master that may acknowledge, or as a replica that follows one
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.replication_service import ReplicationService

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})([kmg]?)b?", re.IGNORECASE)
PATHS = frozenset({"/master", "/replica", "/health", "/readiness"})


class Health(msgspec.Struct, frozen=True, rename="camel"):
    """The facts that the answers depend on."""

    state: str = "starting"  # or "running"
    role: str | None = None
    broker_id: int | None = None
    epoch: int = 0
    may_acknowledge: bool = False  # of a master
    following: bool = False  # of a replica
    log_end: int = 0
    lag: int | None = None  # bytes; None: unknown


STARTING = Health()


def health_of(ctx: BrokerContext, replication: ReplicationService) -> Health:
    is_master, status = ctx.is_master, replication.replica.status
    is_following = not is_master and status.is_following
    known = is_following and status.master_end is not None
    return Health(
        state="running",
        role=ctx.settings.broker_role,
        broker_id=ctx.settings.broker_id,
        epoch=replication.epoch,
        may_acknowledge=is_master and ctx.guard.is_valid,
        following=is_following,
        log_end=ctx.store.log_end,
        lag=max(0, (status.master_end or 0) - ctx.store.whole_end) if known else None,
    )


def answer_page(health: Health, path: str, query: str) -> tuple[int, bytes] | None:
    """(status, body) of a GET; None for a path that is not served."""
    if path not in PATHS:
        return None
    body = msgspec.json.encode(health) + b"\n"
    if path == "/health":
        return 200, body
    if path == "/master":
        return _status(health.may_acknowledge), body
    if path == "/readiness":
        return _status(health.may_acknowledge or health.following), body
    wanted = parse_qs(query).get("lag", [])
    if not wanted:
        return _status(health.following), body
    match = _SIZE.fullmatch(wanted[-1])
    if match is None:
        return 400, b"lag is a number of bytes, or one with kB, MB or GB, such as lag=16MB\n"
    limit = int(match[1]) * _UNITS[match[2].lower()]
    return _status(health.following and health.lag is not None and health.lag <= limit), body


def _status(holds: bool) -> int:
    return 200 if holds else 503
