"""Bugs that can be planted: each breaks one rule, and the simulation must find it."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from twinlog.failover.in_sync import InSyncRules, InSyncState
from twinlog.failover.records import InSync
from twinlog.failover.view import Role, View
from twinlog.replication.master.replica_acks import ReplicaAcks


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A planted bug, and the weather in which it shows soon; without a focus any history will do."""

    what: str
    shape: dict[str, Any] = dataclasses.field(default_factory=dict)
    faults: tuple[str, ...] = ()  # methods of the history
    pause_ms: int = 1000
    late: float = 0.01


MUTANTS = {
    "skip an fsync": Mutant("a replica reports bytes that a power cut can still take"),
    "count an ack twice": Mutant("two connections of one replica count as two replicas"),
    "shrink before writing": Mutant("the acknowledgement rule changes before etcd has the new set"),
    "grow before caught up": Mutant("a replica enters the set without having everything acknowledged"),
    "keep the tail on rejoin": Mutant("a log that differs is not cut where it begins to differ"),
    "promote a lagging replica": Mutant(
        "whoever runs may campaign, in the in-sync set or not",
        {"brokers": 3, "awaits_replicas": True, "syncs_first": True, "size_min": 1},
        ("kill", "part_replica"),
    ),
    "lease valid too long": Mutant(
        "the lease counts from the answer, and for twice its time", {"awaits_replicas": False}, ("lose_etcd",), 4000
    ),
    "ignore a higher epoch": Mutant("nobody compares epochs, with etcd or with each other", {}, ("disaster", "kill")),
    "acknowledge after a pause": Mutant(
        "the guard and the lease are not looked at before an answer", {"awaits_replicas": False}, ("pause",), 4000
    ),
    "campaign without comparing": Mutant(
        "the transaction compares neither the leader key nor the epoch nor the in-sync set",
        {"brokers": 3},
        ("kill", "pause"),
    ),
    "forget an unknown outcome": Mutant(
        "a write of the set that timed out counts as not done",
        {"brokers": 3, "awaits_replicas": True, "size_min": 1, "syncs_first": True},
        ("part_replica", "part_replica", "hear_no_etcd"),
        400,
        0.1,
    ),
    "forget the set at promotion": Mutant(
        "a new master waits for nobody until it has changed the set",
        {"awaits_replicas": True, "syncs_first": True, "size_min": 1},
    ),
    "trust a restarted machine": Mutant(
        "a log that may lack what it had reported is promoted",
        {"brokers": 3, "awaits_replicas": True, "syncs_first": False, "size_min": 2},
        ("cut_power", "kill"),
    ),
}
NO_MUTANT = Mutant("nothing is planted")


def mutated_view(mutant: str, view: View) -> View:
    """What a broker with this bug believes to see."""
    keys = view.keys
    if not mutant or keys is None:
        return view
    if mutant == "promote a lagging replica" and keys.in_sync is not None:
        everyone = InSync(epoch=keys.in_sync.epoch, members=tuple({*keys.in_sync.members, view.me}))
        return dataclasses.replace(view, keys=dataclasses.replace(keys, in_sync=everyone))
    if mutant == "ignore a higher epoch":
        members = {name: msgspec.structs.replace(member, epoch=0) for name, member in keys.members.items()}
        own = view.epochs.own if view.epochs.own <= keys.epoch or view.role is Role.MASTER else 0
        epochs = dataclasses.replace(view.epochs, own=own, seen=max(own, min(view.epochs.seen, keys.epoch)))
        return dataclasses.replace(view, epochs=epochs, keys=dataclasses.replace(keys, members=members))
    if mutant == "grow before caught up":
        return dataclasses.replace(view, acknowledged=0)
    if mutant == "trust a restarted machine":
        members = {name: msgspec.structs.replace(member, whole=True) for name, member in keys.members.items()}
        return dataclasses.replace(view, whole=True, keys=dataclasses.replace(keys, members=members))
    return view


def counted_twice(acks: ReplicaAcks, state: InSyncState, log_end: int, rules: InSyncRules) -> int:
    if not rules.awaits_replicas:
        return log_end
    if state.size < rules.size_min:
        return 0
    needed = len(state.awaited) - 1
    ends = sorted((row.acked for row in acks.rows() if row.usable), reverse=True)
    return log_end if needed == 0 else ends[needed - 1] if len(ends) >= needed else 0
