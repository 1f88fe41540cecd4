"""What a member of the group does next.

`decide` is pure and total, and asking twice gives the same answer. It is called after every event; the service
carries out the first step, reads again, and calls it again. So there is no step that must follow another one: whatever
was interrupted, the next view shows where things stand.

Who is promoted: a member of the in-sync set, which holds everything acknowledged. Of those that run, the one with the
longest log goes first, then the highest priority, then the lowest id. Nobody else, unless an operator forces it.

`explain` says in words why nobody is promoted.
"""

from __future__ import annotations

from twinlog.failover.candidacy import candidacy
from twinlog.failover.in_sync import SetFacts, next_set
from twinlog.failover.records import Keys, State
from twinlog.failover.switch import planned_switch
from twinlog.failover.view import (
    Campaign,
    Follow,
    Promote,
    Publish,
    Resign,
    Role,
    Rules,
    SeeEpoch,
    Step,
    StepDown,
    View,
    WriteInSync,
)


def decide(view: View, now_ms: int, rules: Rules) -> list[Step]:
    """The steps to take now; the service carries out the first one and asks again."""
    if view.role is Role.CHANGING:
        return []
    if view.role is Role.MASTER:
        return _as_master(view, now_ms, rules)
    return _as_replica(view, now_ms, rules) if view.keys is not None else []


def explain(view: View, now_ms: int, rules: Rules) -> str | None:
    """Why there is no master, in words; None when there is one, or when this member takes over now."""
    keys = view.keys
    if keys is None:
        return "etcd has not answered yet"
    if keys.leader is not None:
        return None
    answer = candidacy(view, keys, now_ms, rules)
    return answer if isinstance(answer, str) else None


# -- a master ------------------------------------------------------------------------------------------------------


def _as_master(view: View, now_ms: int, rules: Rules) -> list[Step]:
    keys, own = view.keys, view.epochs.own
    if not view.has_lease(now_ms):
        return [StepDown("the lease was not renewed: etcd does not answer, or this process was held up")]
    if view.epochs.seen > own:
        return [StepDown(f"a master with epoch {view.epochs.seen} has replaced this one, of epoch {own}")]
    if keys is None:
        return []
    if not _is_ours(view, keys) or keys.leader is None or keys.leader.epoch != own:
        return [StepDown("the leader key is not this broker's any more")]
    known = max((member.epoch for member in keys.members.values()), default=0)
    if known > own:
        return [StepDown(f"a broker has seen epoch {known}, above this master's {own}: etcd has lost data")]
    return [
        *_publish(view, keys, "master"),
        *planned_switch(view, keys, now_ms, rules),
        *_change_set(view, keys, now_ms, rules),
    ]


def _change_set(view: View, keys: Keys, now_ms: int, rules: Rules) -> list[Step]:
    facts = SetFacts(
        me=view.me,
        state=view.in_sync,
        replicas=view.replicas,
        live=keys.members,
        acknowledged=view.acknowledged,
        log_end=view.log_end,
        now_ms=now_ms,
    )
    members = next_set(facts, rules.in_sync)
    return [WriteInSync(members)] if members is not None else []


# -- a replica -----------------------------------------------------------------------------------------------------


def _as_replica(view: View, now_ms: int, rules: Rules) -> list[Step]:
    keys = view.keys
    assert keys is not None
    leader = keys.leader
    if leader is None:
        return _leaderless(view, keys, now_ms, rules)
    if leader.member == view.me:
        return _own_key(view, keys, now_ms)
    steps: list[Step] = []
    # A lower epoch than one that was seen: the read is old, or etcd has lost its data.
    if leader.epoch >= view.epochs.seen and view.following != (leader.member, leader.epoch):
        steps.append(Follow(leader.member, leader.address, leader.ha_address, leader.epoch))
    return [*steps, *_publish(view, keys, "replica")]


def _own_key(view: View, keys: Keys, now_ms: int) -> list[Step]:
    """The leader key is ours: a campaign was won, or this broker has stepped down, or its earlier run had the key."""
    leader = keys.leader
    assert leader is not None
    if not _is_ours(view, keys):
        return []  # of an earlier run: only its lease may end it, since that process may still be alive
    if leader.epoch <= view.epochs.own or leader.epoch < view.epochs.seen:
        to = view.handing_to if keys.wish is not None else None
        return [Resign("this broker has stepped down in this epoch; the next master takes a new one", to)]
    return [Promote(leader.epoch)] if view.has_lease(now_ms) else []


def _leaderless(view: View, keys: Keys, now_ms: int, rules: Rules) -> list[Step]:
    steps: list[Step] = []
    if keys.epoch > view.epochs.seen:
        steps.append(SeeEpoch(keys.epoch))
    steps += _publish(view, keys, "candidate")
    answer = candidacy(view, keys, now_ms, rules)
    if isinstance(answer, Campaign):
        steps.append(answer)
    return steps


def _publish(view: View, keys: Keys, state: State) -> list[Step]:
    mine = keys.members.get(view.me)
    if (mine is not None and mine.state == state) or not view.lease:
        return []
    return [Publish(state)]


def _is_ours(view: View, keys: Keys) -> bool:
    """Whether the leader key is on the lease that this process has now."""
    return keys.leader is not None and keys.leader.member == view.me and keys.leader_lease == view.lease != 0
