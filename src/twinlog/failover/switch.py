"""A master carries out an operator's wish that another member becomes master.

    wish --> RefuseSends --target has all of the log--> StepDown --> Resign; the target campaigns
                         --not in time, no force-----> EndSwitch --> ResumeSends

Nothing is appended after RefuseSends, so that the target can reach the end. If this broker stops on the way, its lease
ends and the in-sync set decides as always: the wish ends with the epoch.
"""

from __future__ import annotations

from twinlog.failover.in_sync import NO_REPLICA
from twinlog.failover.records import Keys, Switch
from twinlog.failover.view import EndSwitch, RefuseSends, ResumeSends, Rules, Step, StepDown, View


def planned_switch(view: View, keys: Keys, now_ms: int, rules: Rules) -> list[Step]:
    """For the master that holds the leader key."""
    wish = keys.wish
    if wish is None:
        if keys.switch is not None and keys.switch.result is None:
            return [EndSwitch(f"it was meant for epoch {keys.switch.epoch}; the epoch is {keys.epoch} now")]
        return [ResumeSends()] if view.refused_ms is not None else []
    target = wish.to if wish.to is not None else _best_target(view, keys)
    refusal = _refusal(view, keys, wish, target)
    if refusal is not None or target is None:
        return [EndSwitch(refusal or "no member of the in-sync set runs beside the master")]
    if view.refused_ms is None:
        return [RefuseSends(target)]
    if view.replicas.get(target, NO_REPLICA).acked >= view.log_end:
        return [StepDown(f"{wish.kind} to {target}", target)]
    if now_ms - view.refused_ms <= rules.switch_ms_max:
        return []
    if wish.force:
        return [StepDown(f"forced {wish.kind} to {target}, which does not have all of the log", target)]
    acked = view.replicas.get(target, NO_REPLICA).acked
    return [EndSwitch(f"{target} has the log up to {acked} of {view.log_end} after {rules.switch_ms_max} ms")]


def _refusal(view: View, keys: Keys, wish: Switch, target: str | None) -> str | None:
    if target is None:
        return "no member of the in-sync set runs beside the master"
    if target == view.me:
        return f"{target} is the master already"
    if target not in keys.members:
        return f"{target} does not run: it has no key in etcd"
    if target not in view.in_sync.certain and not wish.force:
        return f"{target} is not in sync, so messages could be lost"
    return None


def _best_target(view: View, keys: Keys) -> str | None:
    """The member of the set with the longest log, then the highest priority, then the lowest id."""
    running = [name for name in view.in_sync.certain if name != view.me and name in keys.members]
    return min(
        running,
        key=lambda name: (-view.replicas.get(name, NO_REPLICA).acked, -keys.members[name].priority, name),
        default=None,
    )
