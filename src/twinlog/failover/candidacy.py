"""Whether a member takes the leader key that nobody holds: a campaign, or the reason why not.

The transaction of a campaign compares everything that is read here: no leader, the same epoch, the same in-sync set,
the same wish of an operator. So an old read, or a request that arrives late, does nothing.

A campaign leaves the in-sync set as it is, with the lost master in it: it holds everything acknowledged so far, and may
be the last one that does when the winner is lost, too. The winner takes out who is gone, by the rule of every master.
"""

from __future__ import annotations

from twinlog.failover.records import Keys, Member, Switch
from twinlog.failover.view import Campaign, Rules, View

_FORCE = "`twinlog failover failover --to MEMBER --force` chooses the master"


def candidacy(view: View, keys: Keys, now_ms: int, rules: Rules) -> Campaign | str:
    """For a replica, while there is no leader."""
    if not view.has_lease(now_ms):
        return "this broker has no lease: etcd does not answer in time"
    wish, known = keys.wish, max([view.epochs.seen, *(member.epoch for member in keys.members.values())])
    members = keys.in_sync.members if keys.in_sync is not None else ()
    is_forced = wish is not None and wish.to == view.me and wish.kind == "failover" and wish.force
    if is_forced and known > keys.epoch and (left_ms := _left_ms(view, now_ms, rules)) > 0:
        return f"etcd has lost data, and perhaps a lease that a master still believes in for up to {left_ms} ms"
    if is_forced and (view.me not in members or known > keys.epoch or not view.whole):
        return _campaign(view, keys, {view.me}, "forced by an operator", known, lost=True)
    if known > keys.epoch:
        return (
            f"etcd knows epoch {keys.epoch}, but a broker has seen epoch {known}: etcd has lost data, so nobody knows "
            f"which brokers are in sync; {_FORCE}"
        )
    if keys.epoch == 0:
        return _first_start(view, keys, now_ms, rules)
    if keys.in_sync is None:
        return f"etcd has an epoch but no in-sync set; {_FORCE}"
    if view.me not in members:
        return f"this broker is not in sync; waiting for one of {', '.join(sorted(members))}"
    if doubt := _doubt(view, keys, {*members}):
        return doubt
    if wish is not None and wish.to == view.me and (wish.ready or wish.kind == "failover"):
        is_helped = wish.kind == "switchover"  # by the master, which gave everything to this member
        return _campaign(view, keys, {*members}, wish.kind, known, lost=not is_helped and _may_lose(rules))
    if keys.pause is not None and (wish is None or wish.kind != "failover"):
        return f"failover is paused by {keys.pause.by or 'an operator'}; `twinlog failover resume` ends the pause"
    if view.priority < 0:
        return f"this broker has priority {view.priority}: it is never promoted by itself"
    if waits := _waits_for(view, keys, wish, now_ms, rules):
        return waits
    return _campaign(view, keys, {*members}, "the master was lost", known, lost=_may_lose(rules))


def _first_start(view: View, keys: Keys, now_ms: int, rules: Rules) -> Campaign | str:
    """No epoch yet: after one lease time, in which the others show up, the longest log leads."""
    if keys.pause is not None:
        return "failover is paused; `twinlog failover resume` ends the pause"
    if view.watched.first_ms is None or now_ms - view.watched.first_ms < rules.lease_ms:
        return "the first start of this group: waiting for other brokers to show up"
    if view.priority < 0:
        return f"this broker has priority {view.priority}: it is never promoted by itself"
    better = _better(view, keys, set(keys.members))
    if better:
        return f"the first start of this group: {better[0]} has a longer log, and goes first"
    return _campaign(view, keys, set(), "the first start of this group", 0)


def _waits_for(view: View, keys: Keys, wish: Switch | None, now_ms: int, rules: Rules) -> str | None:
    """Why another member goes first. Those that run but do not take over are passed over after a lease time."""
    assert keys.in_sync is not None
    members = set(keys.in_sync.members)
    left_ms = _left_ms(view, now_ms, rules)
    if left_ms <= 0:
        return None
    if wish is not None and wish.ready and wish.to != view.me:
        return f"{wish.to} is to become master, and goes first for {left_ms} ms"
    silent = [one for one in sorted(members - {view.me}) if _is_undecided(keys.members.get(one))]
    if silent and left_ms > rules.lease_ms // 2:
        return f"waiting for {', '.join(silent)} to publish the ends of their logs"
    better = _better(view, keys, members)
    return f"{better[0]} has a longer log, a higher priority or a lower id, and goes first" if better else None


def _left_ms(view: View, now_ms: int, rules: Rules) -> int:
    """What is left of the lease time that began when this member first saw no leader."""
    since_ms = view.watched.leaderless_ms
    return rules.lease_ms if since_ms is None else since_ms + rules.lease_ms - now_ms


def _doubt(view: View, keys: Keys, members: set[str]) -> str | None:
    """A log that may lack what was reported leads only if every member of the set runs, and all are in that doubt."""
    doubtful = {name for name in members if name in keys.members and not keys.members[name].whole} | {view.me}
    if view.whole or doubtful == members:
        return None
    return (
        "this broker's machine was restarted, so its log may lack what it had reported; waiting for "
        f"{', '.join(sorted(members - doubtful))}"
    )


def _is_undecided(member: Member | None) -> bool:
    return member is not None and member.state != "candidate"


def _better(view: View, keys: Keys, members: set[str]) -> list[str]:
    """The running members that go before this one, the best first."""
    mine = (view.log_end, view.priority)
    ahead: list[tuple[int, int, str]] = []
    for name, member in keys.members.items():
        if name == view.me or name not in members or member.priority < 0 or member.whole < view.whole:
            continue
        rank = (member.log_end, member.priority)
        if rank > mine or (rank == mine and name < view.me):
            ahead.append((-member.log_end, -member.priority, name))
    return [name for _, _, name in sorted(ahead)]


def _may_lose(rules: Rules) -> bool:
    return not rules.in_sync.awaits_replicas


def _campaign(view: View, keys: Keys, members: set[str], reason: str, known: int, *, lost: bool = False) -> Campaign:
    old = keys.switch
    result = None
    if old is not None and old.result is None and not (old.to in (view.me, None) and old.epoch == keys.epoch):
        result = f"{view.me} became master of epoch {max(keys.epoch, known) + 1}: {reason}"
    end = view.watched.leader_end
    return Campaign(
        epoch=max(keys.epoch, known) + 1,
        in_sync=frozenset(members | {view.me}),
        reason=reason,
        source=keys.last.member if keys.last is not None else None,
        lost=(view.log_end, end) if lost and end > view.log_end else None,
        may_lose=lost,
        switch_result=result,
    )
