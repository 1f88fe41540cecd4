"""Views for the tests: a group of three members, a, b and c, of which a is or was the master of epoch 3."""

from __future__ import annotations

import dataclasses
from typing import Any

from twinlog.failover.in_sync import InSyncState, Replica
from twinlog.failover.records import History, InSync, Keys, Leader, Member, State
from twinlog.failover.view import Role, Rules, View, Watched
from twinlog.replication.master_epoch import MasterEpochs

NOW = 100_000
RULES = Rules(lease_ms=4_000)
LEASES = {"a": 11, "b": 12, "c": 13}


def member(log_end: int = 1000, state: State = "replica", **given: Any) -> Member:
    values: dict[str, Any] = {"address": "h:1", "ha_address": "h:2", "broker_id": 1, "log_start": 0, "epoch": 3}
    return Member(**{**values, "log_end": log_end, "state": state, **given})


def leader(name: str = "a", epoch: int = 3) -> Leader:
    return Leader(member=name, epoch=epoch, address=f"{name}:10911", ha_address=f"{name}:10912")


def keys(lead: str | None = "a", **given: Any) -> Keys:
    """What etcd has; `lead` holds the leader key."""
    state: State = "replica" if lead else "candidate"
    members = {name: member(state="master" if name == lead else state) for name in ("a", "b", "c")}
    values: dict[str, Any] = {
        "revision": 50,
        "epoch": 3,
        "epoch_changed": 30,
        "in_sync": InSync(epoch=3, members=("a", "b", "c")),
        "in_sync_changed": 31,
        "last": History(epoch=3, member="a", address="a:10911", start=0, reason="", at_ms=0),
        "members": members,
    }
    if lead is not None:
        values |= {"leader": leader(lead), "leader_created": 30, "leader_lease": LEASES[lead]}
    return Keys(**{**values, **given})


def without(found: Keys, *names: str) -> Keys:
    """The same keys, after the leases of these members have ended."""
    return dataclasses.replace(found, members={n: m for n, m in found.members.items() if n not in names})


def replica(me: str, found: Keys | None, **given: Any) -> View:
    """A replica that has been without a leader for a second, if there is none."""
    leaderless_ms = None if found is None or found.leader is not None else NOW - 1000
    values: dict[str, Any] = {
        "me": me,
        "address": f"{me}:10911",
        "ha_address": f"{me}:10912",
        "epochs": MasterEpochs(0, 3, is_replica=True),
        "log_end": 1000,
        "lease": LEASES[me],
        "lease_until_ms": NOW + 3000,
        "keys": found,
        "watched": Watched(NOW - 60_000, leaderless_ms, 1000),
    }
    return View(**{**values, **given})


def master(found: Keys | None, me: str = "a", **given: Any) -> View:
    """The master of epoch 3, with both replicas in sync."""
    everyone = frozenset({"a", "b", "c"})
    values: dict[str, Any] = {
        "role": Role.MASTER,
        "epochs": MasterEpochs(3, 3),
        "in_sync": InSyncState(everyone, 31),
        "replicas": {name: Replica(1000, True) for name in everyone - {me}},
        "acknowledged": 1000,
    }
    return replica(me, found, **{**values, **given})
