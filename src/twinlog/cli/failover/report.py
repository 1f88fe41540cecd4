"""What etcd has about a group, as tables and JSON. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from twinlog.cli.shared.report import Report, Table, when
from twinlog.failover.records import History, Keys
from twinlog.failover.tails import is_exact
from twinlog.observe.replicas.failover_groups import Found

_MEMBER_COLUMNS = "BID,Addr,State,InSync,LogEnd,Behind,Priority".split(",")
_HISTORY_COLUMNS = "Epoch,At,Master,From,Start,Lost,Reason".split(",")
_ID_SHOWN = 8


def list_report(groups: Sequence[Found]) -> Report:
    """The members of each group, and who leads it."""
    tables = [Table(_MEMBER_COLUMNS, member_rows(one.keys), _title(one)) for one in groups]
    lines = [line for one in groups for line in _remarks(one)]
    if not groups:
        lines = ["no group of brokers with automatic failover is in this etcd"]
    return Report(tables, lines, [group_data(one) for one in groups])


def history_report(found: Found) -> Report:
    """Every master of the group, the newest first."""
    rows: list[Sequence[Any]] = [
        (
            one.epoch,
            when(one.at_ms)[5:19],
            one.address,
            (one.source or "")[:_ID_SHOWN],
            one.start,
            "" if one.lost is None else f"{one.lost[0]} to {one.lost[1]}",
            one.reason,
        )
        for one in found.history
    ]
    data = [{**_builtins(one), "cluster": found.cluster, "brokerName": found.name} for one in found.history]
    lines = [line for one in found.history for line in _losses(one)]
    if not rows:
        lines = [f"{found.name} has had no master yet"]
    return Report([Table(_HISTORY_COLUMNS, rows, f"{found.cluster}/{found.name}")] if rows else [], lines, data)


def _losses(one: History) -> list[str]:
    """What became of the ends of logs that the new master did not have."""
    acknowledged = "perhaps acknowledged" if one.may_lose else "none of them acknowledged"
    lines = [
        f"epoch {one.epoch}: {tail.address} came back and set aside {tail.messages} messages, {acknowledged}, bytes "
        f"{tail.begin} to {tail.end} of its log: {tail.file}"
        if tail.messages
        else f"epoch {one.epoch}: {tail.address} came back and had nothing that the new master lacks"
        for tail in one.tails
    ]
    if one.may_lose and not is_exact(one):
        lines.append(
            f"epoch {one.epoch}: what is lost is an estimate until store {(one.source or '')[:_ID_SHOWN]} is back: it "
            "published the end of its log once a second"
        )
    return lines


def member_rows(keys: Keys) -> list[Sequence[Any]]:
    """Running members by broker id, then those of the in-sync set that do not run."""
    in_sync = set(keys.in_sync.members) if keys.in_sync is not None else set[str]()
    leader = keys.leader.member if keys.leader is not None else None
    end = published_end(keys)
    rows: list[Sequence[Any]] = [
        (
            one.broker_id,
            one.address,
            "master" if member == leader else one.state if one.state != "master" else "replica",
            member in in_sync,
            one.log_end,
            0 if member == leader else max(0, end - one.log_end),  # ends are published about once a second
            one.priority,
        )
        for member, one in sorted(keys.members.items(), key=lambda pair: (pair[0] != leader, pair[1].broker_id))
    ]
    gone = sorted(in_sync - keys.members.keys())
    return rows + [(None, f"store {member[:_ID_SHOWN]}", "not running", True, None, None, None) for member in gone]


def published_end(keys: Keys) -> int:
    """The highest end of a log that any running member has published."""
    return max((one.log_end for one in keys.members.values()), default=0)


def group_data(found: Found) -> dict[str, Any]:
    keys = found.keys
    return {
        "cluster": found.cluster,
        "brokerName": found.name,
        "epoch": keys.epoch,
        "leader": None if keys.leader is None else _builtins(keys.leader),
        "inSync": None if keys.in_sync is None else _builtins(keys.in_sync),
        "members": {member: _builtins(one) for member, one in keys.members.items()},
        "switch": None if keys.switch is None else _builtins(keys.switch),
        "pause": None if keys.pause is None else _builtins(keys.pause),
    }


def _title(found: Found) -> str:
    keys = found.keys
    leads = f"master {keys.leader.address}" if keys.leader is not None else "no master"
    paused = ", paused" if keys.pause is not None else ""
    return f"{found.cluster}/{found.name}: {leads}, epoch {keys.epoch}{paused}"


def _remarks(found: Found) -> list[str]:
    keys, name, lines = found.keys, found.name, list[str]()
    if keys.pause is not None:
        why = f": {keys.pause.why}" if keys.pause.why else ""
        lines.append(
            f"{name} is paused since {when(keys.pause.at_ms)[:19]} by {keys.pause.by or 'somebody'}{why}. Nobody takes "
            f"over by itself; end it with: twinlog failover resume {name}"
        )
    if keys.wish is not None:
        lines.append(f"{name}: a {keys.wish.kind} to {keys.wish.to or 'the best replica'} is under way")
    if keys.leader is None and keys.members:
        lines.append(f"{name} has no master: see `twinlog failover history {name}`, and the brokers' logs")
    return lines


def _builtins(record: Any) -> dict[str, Any]:
    return msgspec.to_builtins(record)
