"""Which members must hold a message before it is acknowledged.

The in-sync set in etcd names the members that hold everything acknowledged: one of them becomes the next master. So a
master acknowledges what every member of that set has reported, and it changes the set in this order:

    growing     the new member holds everything acknowledged so far; sends wait for it too; then etcd is written
    shrinking   etcd is written; then sends no longer wait for the member

A write whose answer is lost may still arrive at etcd, long after. It compares the revision of the set, so it is
settled by the next write that succeeds, or by a read that shows a newer revision. Until then sends wait for the
members of every set that etcd may have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Replica:
    """What a master knows of one of its replicas."""

    acked: int = 0  # the end that it reported on a connection of this epoch; 0 without a connection
    connected: bool = False
    behind_ms: int | None = None  # since when it has not had all of the log, or no connection; None: it has


NO_REPLICA = Replica()


@dataclass(frozen=True, slots=True)
class InSyncState:
    """The set as a master knows it.

    Invariant: etcd has `members` or one of `unsure`, and as long as its revision is `changed`, it can get no other one.
    """

    members: frozenset[str] = frozenset()
    changed: int = 0  # the revision of the key `in-sync`
    unsure: frozenset[frozenset[str]] = frozenset()  # written for that revision, with unknown outcome

    @property
    def awaited(self) -> frozenset[str]:
        """The members whose reports a send waits for, the master included."""
        return self.members.union(*self.unsure)

    @property
    def certain(self) -> frozenset[str]:
        """The members that are in the set, whichever etcd has."""
        return self.members.intersection(*self.unsure)

    @property
    def size(self) -> int:
        return min(len(members) for members in (self.members, *self.unsure))

    def writing(self, members: Collection[str]) -> InSyncState:
        """Before a write is sent."""
        return replace(self, unsure=self.unsure | {frozenset(members)})

    def written(self, members: Collection[str], changed: int) -> InSyncState:
        """After a write that certainly succeeded, at revision `changed`."""
        return InSyncState(frozenset(members), changed) if changed > self.changed else self

    def read(self, members: Collection[str], changed: int) -> InSyncState:
        """After a read. The same revision as before does not settle a write: it may be on its way."""
        return InSyncState(frozenset(members), changed) if changed > self.changed else self


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncRules:
    size_min: int = 2  # members, the master included, without which nothing is acknowledged
    behind_ms_max: int = 15_000  # a member that has been behind for longer leaves the set
    gone_ms_max: int = 4_000  # a member without a connection for longer leaves it
    gap_bytes_max: int = 256 * 1024 * 1024  # a replica that is further behind does not enter it
    awaits_replicas: bool = True  # False: an ASYNC master, whose sends wait for nobody


def acknowledged_end(
    state: InSyncState, me: str, replicas: Mapping[str, Replica], log_end: int, rules: InSyncRules
) -> int:
    """The end of what a master may acknowledge."""
    if not rules.awaits_replicas:
        return log_end
    if me not in state.certain or state.size < rules.size_min:
        return 0
    return min((replicas.get(one, NO_REPLICA).acked for one in state.awaited if one != me), default=log_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """What the next change of the set depends on."""

    me: str
    state: InSyncState
    replicas: Mapping[str, Replica]
    live: Collection[str]  # members whose key is in etcd
    acknowledged: int  # the end of what may have been acknowledged, by this master or by those before it
    log_end: int
    now_ms: int


def next_set(facts: SetFacts, rules: InSyncRules) -> frozenset[str] | None:
    """The set to write next, or None. One member enters or leaves at a time; those that enter go first."""
    state = facts.state
    now = state.members
    for member in sorted(facts.live):
        if member not in now and _may_enter(facts.replicas.get(member, NO_REPLICA), facts, rules):
            return now | {member}
    gone = [member for member in now if member != facts.me and _must_leave(member, facts, rules)]
    if gone and len(now) > rules.size_min:
        return now - {min(gone, key=lambda member: _behind_since(member, facts))}
    return now if state.unsure else None


def _may_enter(replica: Replica, facts: SetFacts, rules: InSyncRules) -> bool:
    if not replica.connected or (replica.acked < facts.acknowledged and rules.awaits_replicas):
        return False
    return facts.log_end - replica.acked <= rules.gap_bytes_max


def _must_leave(member: str, facts: SetFacts, rules: InSyncRules) -> bool:
    replica = facts.replicas.get(member, NO_REPLICA)
    if replica.behind_ms is None:
        return False
    if not rules.awaits_replicas and replica.connected:
        return facts.log_end - replica.acked > rules.gap_bytes_max
    if not replica.connected and member not in facts.live:
        return True  # its lease has ended
    # One that was stopped keeps its connection, but not its lease.
    is_well = replica.connected and member in facts.live
    limit_ms = rules.behind_ms_max if is_well else rules.gone_ms_max
    return facts.now_ms - replica.behind_ms > limit_ms


def _behind_since(member: str, facts: SetFacts) -> tuple[int, str]:
    return facts.replicas.get(member, NO_REPLICA).behind_ms or 0, member
