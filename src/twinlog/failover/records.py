"""The values of the keys in etcd, and one consistent read of all of them.

Below PREFIX/CLUSTER/BROKERNAME/ (names here are relative to it):

    leader       Leader     the master; on its lease
    members/ID   Member     a broker that runs; on its lease
    in-sync      InSync     the members that hold everything acknowledged
    epoch        a number   of the newest master; it only grows
    history/N    History    who took epoch N, and why
    switch       Switch     what an operator asks for
    pause        Pause      while it is there, nobody is promoted without an operator's wish

All are JSON. A member is a store directory (its instance id): a store that was emptied is another member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

LEADER, IN_SYNC, EPOCH, SWITCH, PAUSE = "leader", "in-sync", "epoch", "switch", "pause"
_MEMBERS, HISTORY = "members/", "history/"
HISTORY_KEPT = 100  # records; a campaign deletes the one that is older

State = Literal["replica", "candidate", "master"]
Kind = Literal["switchover", "failover"]


class RecordBroken(Exception):
    """The value of a key does not parse; nothing is decided until an operator has mended it."""

    def __init__(self, key: str, value: bytes, cause: object) -> None:
        super().__init__(f"the etcd key {key} has the value {value[:200]!r}: {cause}; delete or correct it")


class Leader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    member: str
    epoch: int
    address: str
    ha_address: str


class Member(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker that runs. `epoch` is the highest that it knows of."""

    address: str
    ha_address: str
    broker_id: int
    log_start: int
    log_end: int
    epoch: int
    priority: int = 0  # among equally long logs the highest goes first; below 0: never promoted by itself
    state: State = "replica"  # "candidate": knows that there is no leader; its log end is as of then, or later
    whole: bool = True  # False: its machine stopped, and it may lack bytes that it had reported
    version: str = ""


class InSync(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    epoch: int
    members: tuple[str, ...]


class Tail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a log that a broker set aside, since the master that it then followed does not have it."""

    member: str
    address: str
    begin: int
    end: int
    messages: int
    file: str  # on the machine of that broker
    at_ms: int


class History(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    epoch: int
    member: str
    address: str
    start: int  # the end of the new master's log at that time
    source: str | None = msgspec.field(name="from", default=None)  # the master before it
    reason: str
    at_ms: int
    # Bytes of the old master's log, perhaps acknowledged, that are gone: up to the end that it published last, and when
    # it has come back, up to the end that it had.
    lost: tuple[int, int] | None = None
    may_lose: bool = False  # acknowledged messages may be gone, also if `lost` is not known
    tails: tuple[Tail, ...] = ()


class Switch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an operator asks for. One with a result is over, and stays for the operator to read."""

    to: str | None  # None: the best of the in-sync set
    kind: Kind
    epoch: int  # the epoch key as the operator saw it: the wish ends with that epoch
    force: bool = False  # also a member that is not in sync
    by: str = ""
    at_ms: int = 0
    ready: bool = False  # the master has refused sends, and given up the leader key for `to`
    result: str | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    by: str = ""
    at_ms: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a read, as etcd has it; `name` is relative."""

    name: str
    value: bytes
    created: int  # create_revision
    changed: int  # mod_revision
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """All keys of the group at one revision. A revision is 0 for a key that is absent."""

    revision: int = 0
    leader: Leader | None = None
    leader_created: int = 0
    leader_lease: int = 0
    epoch: int = 0
    epoch_changed: int = 0
    in_sync: InSync | None = None
    in_sync_changed: int = 0
    switch: Switch | None = None
    switch_changed: int = 0
    pause: Pause | None = None
    last: History | None = None  # of the present epoch
    members: Mapping[str, Member] = field(default_factory=dict[str, Member])

    @property
    def wish(self) -> Switch | None:
        """An operator's wish that is neither over nor meant for an earlier epoch."""
        switch = self.switch
        return switch if switch is not None and switch.result is None and switch.epoch == self.epoch else None


def member_name(member: str) -> str:
    return _MEMBERS + member


def history_name(epoch: int) -> str:
    return f"{HISTORY}{epoch}"


def encode_record(record: msgspec.Struct | int) -> bytes:
    return msgspec.json.encode(record)


_T = TypeVar("_T")


def decode_record(kind: type[_T], name: str, value: bytes) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (ValueError, RecursionError) as error:
        raise RecordBroken(name, value, error) from error


def read_keys(entries: Iterable[Entry], revision: int) -> Keys:
    """The group's keys, of one read of everything below its prefix.

    A member whose record does not parse counts as absent; any other broken record is RecordBroken.
    """
    by_name = {entry.name: entry for entry in entries}
    absent = Entry("", b"", 0, 0)
    leader, in_sync, epoch = (by_name.get(name, absent) for name in (LEADER, IN_SYNC, EPOCH))
    switch, pause = by_name.get(SWITCH, absent), by_name.get(PAUSE)
    number = decode_record(int, EPOCH, epoch.value) if epoch.changed else 0
    last = by_name.get(history_name(number))
    return Keys(
        revision=revision,
        leader=decode_record(Leader, LEADER, leader.value) if leader.created else None,
        leader_created=leader.created,
        leader_lease=leader.lease,
        epoch=number,
        epoch_changed=epoch.changed,
        in_sync=decode_record(InSync, IN_SYNC, in_sync.value) if in_sync.changed else None,
        in_sync_changed=in_sync.changed,
        switch=decode_record(Switch, SWITCH, switch.value) if switch.changed else None,
        switch_changed=switch.changed,
        pause=decode_record(Pause, PAUSE, pause.value) if pause is not None else None,
        last=decode_record(History, last.name, last.value) if last is not None else None,
        members=_read_members(by_name.values()),
    )


def _read_members(entries: Iterable[Entry]) -> dict[str, Member]:
    members: dict[str, Member] = {}
    for entry in entries:
        if entry.name.startswith(_MEMBERS):
            try:
                members[entry.name.removeprefix(_MEMBERS)] = decode_record(Member, entry.name, entry.value)
            except RecordBroken:
                continue
    return members
