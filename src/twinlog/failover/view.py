"""Everything that a decision depends on, and the steps that it may return.

A service makes a `View` of what it knows, calls `decide`, carries out the first step, looks again. Times are those of a
clock that does not jump and goes on while the process is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from twinlog.failover.in_sync import InSyncRules, InSyncState, Replica
from twinlog.failover.records import Keys, State
from twinlog.replication.master_epoch import MasterEpochs


class Role(StrEnum):
    REPLICA = "replica"
    MASTER = "master"
    CHANGING = "changing"  # steps of a role change are being taken, or one of them failed and is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings of a group."""

    lease_ms: int = 4_000
    switch_ms_max: int = 10_000  # how long a master refuses sends while the target of a planned switch catches up
    in_sync: InSyncRules = field(default_factory=InSyncRules)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a member remembers of earlier reads, since its process started."""

    first_ms: int | None = None  # when the first read came
    leaderless_ms: int | None = None  # since when reads show no leader
    leader_end: int = 0  # the end of its log that the last leader published

    def saw(self, keys: Keys, now_ms: int) -> Watched:
        """After each read."""
        first_ms = now_ms if self.first_ms is None else self.first_ms
        if keys.leader is None:
            leaderless_ms = now_ms if self.leaderless_ms is None else self.leaderless_ms
            return replace(self, first_ms=first_ms, leaderless_ms=leaderless_ms)
        leader = keys.members.get(keys.leader.member)
        return Watched(first_ms, None, leader.log_end if leader is not None else self.leader_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One member's knowledge. `keys` never goes back to an earlier revision of the same etcd."""

    me: str
    address: str = ""
    ha_address: str = ""
    role: Role = Role.REPLICA
    epochs: MasterEpochs = field(default_factory=MasterEpochs)  # what the epoch file has
    log_end: int = 0
    priority: int = 0
    whole: bool = True  # see Member.whole
    lease: int = 0  # the id of this life's lease; 0: none
    lease_until_ms: int = 0  # until then the lease is certainly alive at etcd, with a margin
    keys: Keys | None = None  # the newest read; None before the first one
    watched: Watched = Watched()
    following: tuple[str, int] | None = None  # (member, epoch) of the master that this replica has to follow
    in_sync: InSyncState = field(default_factory=InSyncState)  # of a master
    replicas: Mapping[str, Replica] = field(default_factory=dict[str, Replica])  # of a master, by member
    acknowledged: int = 0  # of a master: the highest end acknowledged, and at least its log end when it was promoted
    handing_to: str | None = None  # of a replica: the target of the planned switch for which it stepped down just now
    refused_ms: int | None = None  # of a master: since when sends are refused for a planned switch

    def has_lease(self, now_ms: int) -> bool:
        return self.lease != 0 and now_ms <= self.lease_until_ms


# -- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Write this member's record with this state at once."""

    state: State


@dataclass(frozen=True, slots=True)
class SeeEpoch:
    """Save in the epoch file that this epoch exists: older masters are refused from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow this master; SeeEpoch(epoch) is part of it."""

    member: str
    address: str
    ha_address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Campaign:
    """Take the leader key, in one transaction. Whether it succeeded is seen in the next read."""

    epoch: int
    in_sync: frozenset[str]
    reason: str
    source: str | None  # the master before
    lost: tuple[int, int] | None = None
    may_lose: bool = False  # messages may be lost that were acknowledged
    switch_result: str | None = None  # what an operator reads whose wish ends with this; None: it is carried out


@dataclass(frozen=True, slots=True)
class Promote:
    """Become master with exactly this epoch, which is in the epoch file before the first send is accepted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Acknowledge nothing from now on, and become a replica without feeding anybody. A leader key is resigned next."""

    why: str
    to: str | None = None  # the target of a planned switch: `View.handing_to` from now on


@dataclass(frozen=True, slots=True)
class Resign:
    """Delete our own leader key; this broker is a replica by now."""

    why: str
    to: str | None = None  # the target of a planned switch, which may campaign first


@dataclass(frozen=True, slots=True)
class WriteInSync:
    """Call `InSyncState.writing` in the same turn as `decide`, then write the set."""

    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class RefuseSends:
    """For a planned switch: append and acknowledge nothing, and keep the role."""

    to: str


@dataclass(frozen=True, slots=True)
class ResumeSends:
    """The planned switch did not come about: go on as master."""


@dataclass(frozen=True, slots=True)
class EndSwitch:
    """Write the result of an operator's wish into its record."""

    result: str


Step = (
    Publish
    | SeeEpoch
    | Follow
    | Campaign
    | Promote
    | StepDown
    | Resign
    | WriteInSync
    | RefuseSends
    | ResumeSends
    | EndSwitch
)
