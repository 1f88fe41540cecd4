"""The etcd transaction of each step that writes: what it compares, what it puts and deletes.

Names are relative to the group's prefix. A put on a lease vanishes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from twinlog.failover.comparisons import ChangedAt, Condition, CreatedAt, Delete, Put, Write
from twinlog.failover.records import (
    EPOCH,
    HISTORY_KEPT,
    IN_SYNC,
    LEADER,
    SWITCH,
    History,
    InSync,
    Leader,
    encode_record,
    history_name,
)
from twinlog.failover.view import Campaign, EndSwitch, Resign, View, WriteInSync


@dataclass(frozen=True, slots=True)
class Transaction:
    """If all of `compares` hold, all of `writes` happen; else nothing does."""

    compares: tuple[Condition, ...]
    writes: tuple[Write, ...]


def transaction(step: Campaign | Resign | WriteInSync | EndSwitch, view: View, wall_ms: int) -> Transaction:
    """What carries out `step`, which was decided on `view`; `wall_ms` is for people to read."""
    if isinstance(step, Campaign):
        return _campaign(step, view, wall_ms)
    if isinstance(step, Resign):
        return _resign(step, view)
    if isinstance(step, WriteInSync):
        return _write_in_sync(step, view)
    return _end_switch(step, view)


def _campaign(step: Campaign, view: View, wall_ms: int) -> Transaction:
    keys = view.keys
    assert keys is not None and view.lease
    leader = Leader(member=view.me, epoch=step.epoch, address=view.address, ha_address=view.ha_address)
    history = History(
        epoch=step.epoch,
        member=view.me,
        address=view.address,
        start=view.log_end,
        source=step.source,
        reason=step.reason,
        at_ms=wall_ms,
        lost=step.lost,
        may_lose=step.may_lose,
    )
    in_sync = InSync(epoch=step.epoch, members=tuple(sorted(step.in_sync)))
    writes: list[Write] = [
        Put(LEADER, encode_record(leader), view.lease),
        Put(EPOCH, encode_record(step.epoch)),
        Put(IN_SYNC, encode_record(in_sync)),
        Put(history_name(step.epoch), encode_record(history)),
    ]
    if step.epoch > HISTORY_KEPT:
        writes.append(Delete(history_name(step.epoch - HISTORY_KEPT)))
    if keys.switch is not None and keys.switch.result is None:
        if step.switch_result is None:
            writes.append(Delete(SWITCH))
        else:
            writes.append(Put(SWITCH, encode_record(msgspec.structs.replace(keys.switch, result=step.switch_result))))
    compares = (
        CreatedAt(LEADER, 0),
        ChangedAt(EPOCH, keys.epoch_changed),
        ChangedAt(IN_SYNC, keys.in_sync_changed),
        ChangedAt(SWITCH, keys.switch_changed),
    )
    return Transaction(compares, tuple(writes))


def _resign(step: Resign, view: View) -> Transaction:
    keys = view.keys
    assert keys is not None
    if step.to is None or keys.switch is None:
        return Transaction((CreatedAt(LEADER, keys.leader_created),), (Delete(LEADER),))
    ready = msgspec.structs.replace(keys.switch, to=step.to, ready=True)
    return Transaction(
        (CreatedAt(LEADER, keys.leader_created), ChangedAt(SWITCH, keys.switch_changed)),
        (Delete(LEADER), Put(SWITCH, encode_record(ready))),
    )


def _write_in_sync(step: WriteInSync, view: View) -> Transaction:
    keys = view.keys
    assert keys is not None
    in_sync = InSync(epoch=view.epochs.own, members=tuple(sorted(step.members)))
    return Transaction(
        (CreatedAt(LEADER, keys.leader_created), ChangedAt(IN_SYNC, view.in_sync.changed)),
        (Put(IN_SYNC, encode_record(in_sync)),),
    )


def note_tail(name: str, changed: int, record: History) -> Transaction:
    """Put this record of the history in the place of the one that was read."""
    return Transaction((ChangedAt(name, changed),), (Put(name, encode_record(record)),))


def _end_switch(step: EndSwitch, view: View) -> Transaction:
    keys = view.keys
    assert keys is not None and keys.switch is not None
    ended = msgspec.structs.replace(keys.switch, result=step.result)
    return Transaction(
        (CreatedAt(LEADER, keys.leader_created), ChangedAt(SWITCH, keys.switch_changed)),
        (Put(SWITCH, encode_record(ended)),),
    )
