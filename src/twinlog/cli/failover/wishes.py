"""An operator's wish for another master: checked, written into etcd, and watched until the brokers have done it.

nothing --write `switch`--> the master refuses sends, feeds --> the target campaigns --> a new epoch
                                                           \\-> a result: why it did not happen; the master goes on
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twinlog.cli.failover.report import published_end
from twinlog.client import ClientError
from twinlog.failover.comparisons import ChangedAt, Delete, Put
from twinlog.failover.records import EPOCH, SWITCH, Keys, Kind, Switch, encode_record
from twinlog.failover.transactions import Transaction
from twinlog.observe.replicas.failover_groups import FailoverRefused, Found, find_member

WAIT_S_MAX = 60.0
_POLL_S = 0.3


class WishFailed(ClientError):
    """The brokers did not do it; the message says who is master."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A switch that may be asked for, and the bytes that it would lose."""

    switch: Switch
    target: str  # as people read it
    lost: tuple[int, int] | None


def plan_switchover(found: Found, to: str | None, by: str, now_ms: int) -> Wish:
    """A switch without loss; FailoverRefused if there could be one."""
    keys, member = found.keys, None
    _check_free(found)
    if keys.leader is None:
        raise FailoverRefused(
            f"{found.name} has no master, so nothing can be handed over; wait until one is elected, or use `twinlog "
            f"failover failover {found.name} --to HOST:PORT`"
        )
    in_sync = set(keys.in_sync.members) if keys.in_sync is not None else set[str]()
    if to is not None:
        member, record = find_member(found, to)
        if member == keys.leader.member:
            raise FailoverRefused(f"{record.address} is the master of {found.name} already")
        if member not in in_sync:
            raise FailoverRefused(
                f"{record.address} is not in sync: acknowledged messages could be lost. Wait until `twinlog failover "
                "list` shows it in sync"
            )
    elif not (in_sync & keys.members.keys()) - {keys.leader.member}:
        raise FailoverRefused(f"no replica of {found.name} is in sync and running; see `twinlog failover list`")
    target = to or "the best replica"
    return Wish(_switch(keys, member, "switchover", by, now_ms), target, None)


def plan_failover(found: Found, to: str | None, by: str, now_ms: int, *, force: bool) -> Wish:
    """A switch without the master's help. Bytes that the target lacks are lost: only with `force`."""
    keys = found.keys
    _check_free(found)
    if to is None:
        raise FailoverRefused("name the broker that becomes master: --to HOST:PORT")
    member, record = find_member(found, to)
    if keys.leader is not None and member == keys.leader.member:
        raise FailoverRefused(f"{record.address} is the master of {found.name} already")
    end = published_end(keys)
    lost = (record.log_end, end) if end > record.log_end else None
    in_sync = keys.in_sync is not None and member in keys.in_sync.members
    if not in_sync and not force:
        what = f"bytes {lost[0]} to {lost[1]} of the log" if lost else "what the last master had and nobody published"
        raise FailoverRefused(
            f"{record.address} is not in sync: {what} would be lost, also messages that were acknowledged. Repeat with "
            "--force to lose them, or use a member that is in sync"
        )
    return Wish(_switch(keys, member, "failover", by, now_ms, force=force), record.address, None if in_sync else lost)


def put_wish(keys: Keys, switch: Switch) -> Transaction:
    """Written only if nobody else has asked meanwhile, and the epoch is what the operator saw."""
    compares = (ChangedAt(SWITCH, keys.switch_changed), ChangedAt(EPOCH, keys.epoch_changed))
    return Transaction(compares, (Put(SWITCH, encode_record(switch)),))


def withdraw(keys: Keys) -> Transaction:
    return Transaction((ChangedAt(SWITCH, keys.switch_changed),), (Delete(SWITCH),))


async def carry_out(
    found: Found, wish: Wish, *, wait_s: float = WAIT_S_MAX, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Keys:
    """Ask, and wait until another epoch has begun; returns the keys then. WishFailed says why it did not."""
    if await found.group.transact(put_wish(found.keys, wish.switch)) is None:
        raise FailoverRefused(f"{found.name} has changed in this moment; look with `twinlog failover list` and repeat")
    deadline = time.monotonic() + wait_s
    keys = found.keys
    while time.monotonic() < deadline:
        await sleep(_POLL_S)
        keys = await found.group.read()
        if keys.epoch > wish.switch.epoch and keys.leader is not None:
            if wish.switch.to not in (None, keys.leader.member):
                raise WishFailed(f"another member took over: {keys.leader.address} is master, epoch {keys.epoch}")
            return keys
        if keys.switch is not None and keys.switch.result is not None and keys.epoch == wish.switch.epoch:
            raise WishFailed(f"the {wish.switch.kind} did not happen: {keys.switch.result}. {_who(keys)}")
    if keys.wish is not None and not keys.wish.ready and await found.group.transact(withdraw(keys)) is not None:
        raise WishFailed(f"nothing happened within {wait_s:.0f} s, so the wish is withdrawn. {_who(keys)}")
    raise WishFailed(
        f"it is not over after {wait_s:.0f} s. {_who(keys)}; look again with `twinlog failover list {found.name}`"
    )


def _switch(keys: Keys, to: str | None, kind: Kind, by: str, now_ms: int, *, force: bool = False) -> Switch:
    return Switch(to=to, kind=kind, epoch=keys.epoch, force=force, by=by, at_ms=now_ms)


def _check_free(found: Found) -> None:
    if (wish := found.keys.wish) is not None:
        raise FailoverRefused(
            f"a {wish.kind} of {found.name} is under way already, asked for by {wish.by}; wait for it"
        )


def _who(keys: Keys) -> str:
    return f"The master is {keys.leader.address}" if keys.leader is not None else "There is no master now"
