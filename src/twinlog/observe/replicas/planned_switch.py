"""A planned switch: a replica takes over from its master, which becomes its replica.

    near --step down--> nobody is master --promote--> the replica is master --follow--> both logs are equal

Until the promotion the old master can be made master again, and is if something fails: nothing was written meanwhile.
After it, the new master stays. Whatever fails, the error says who is master and what to type next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twinlog.client import Admin, BrokerRefused, ClientError
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.observe.cluster.broker_groups import Group, Member
from twinlog.replication.digests import RANGE_BYTES_MAX

MIB = 1024 * 1024
NEAR_BYTES_MAX = 64 * MIB  # no broker accepts sends while the replica gets the rest
_FOLLOW_S_MAX = 30.0
_POLL_S = 0.1
Tell = Callable[[str], None]


class SwitchRefused(ClientError):
    """Nothing was changed; the message says why."""


class SwitchFailed(ClientError):
    """A step failed; the message says who is master now, and what to do."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A planned switch that may begin."""

    name: str
    old: Member
    new: Member
    role: str  # of the master, now and afterwards

    @property
    def new_id(self) -> int:
        """The id that the old master takes."""
        return self.new.broker_id


def plan_switch(groups: Sequence[Group], name: str | None, to: str | None) -> Switch:
    """The switch that is asked for; SwitchRefused if it is ambiguous, or would not be without loss."""
    group = _group(groups, name)
    if any(one.document.get("failover") for one in group.members):
        raise SwitchRefused(f"{group.name} is under automatic failover: use `twinlog failover switchover {group.name}`")
    master = group.master
    if master is None or master.kind == "silent":
        raise SwitchRefused(
            f"{group.name} has no master that answers; a planned switch needs one. To make a replica master without "
            "it: twinlog replication change-role -b REPLICA --role ASYNC_MASTER"
        )
    replica = _replica(group, to)
    if replica.kind == "silent":
        raise SwitchRefused(f"the replica does not answer, so it cannot take over: {replica.error}")
    for one in (master, replica):
        if one.kind != "twinlog":
            raise SwitchRefused(f"{one.address} is a {one.kind} broker: only Twinlog brokers change their role")
    _check_near(group, replica)
    return Switch(group.name, master, replica, master.role)


@dataclass(frozen=True, slots=True)
class Switched:
    """A switch that is done, and the range of both logs that was compared."""

    name: str
    master: str
    role: str
    epoch: int | None
    replica: str
    replica_id: int
    compared_from: int
    compared_to: int
    paused_s: float  # no broker of this name took messages

    @property
    def lines(self) -> tuple[str, str]:
        return (
            f"{self.master} is the master of {self.name} now, epoch {self.epoch}; {self.replica} is its replica "
            f"{self.replica_id}.",
            f"For {self.paused_s:.1f} s no broker of {self.name} took messages.",
        )


async def carry_out(admin: Admin, plan: Switch, name_servers: str, tell: Tell) -> Switched:
    """Do it, step by step; SwitchFailed names the state in which a failure leaves the pair."""
    return await _Run(admin, plan, name_servers, tell).run()


class _Run:
    def __init__(self, admin: Admin, plan: Switch, name_servers: str, tell: Tell) -> None:
        self._admin = admin
        self._plan = plan
        self._names = name_servers
        self._tell = tell

    async def run(self) -> Switched:
        plan, old, new = self._plan, self._plan.old.address, self._plan.new.address
        self._tell(f"{plan.name}: master {old} ({plan.role}), replica {new} with id {plan.new_id}")
        began = time.monotonic()
        self._tell(f"1. {old} steps down and gives {new} the rest of its log")
        await self._try("step down", self._step_down)
        self._tell(f"2. {new} becomes {plan.role}")
        await self._try("take over", self._promote)
        paused_s = time.monotonic() - began
        self._tell(f"3. {old} follows it as replica {plan.new_id}")
        await self._until_following()
        begin, end = await self._compare()
        self._tell(f"4. both logs are equal from {begin} to {end}")
        epoch = (await self._status(new)).get("epoch")
        return Switched(plan.name, new, plan.role, epoch, old, plan.new_id, begin, end, paused_s)

    # -- steps ---------------------------------------------------------------------------------

    async def _step_down(self) -> None:
        old, new = self._plan.old.address, self._plan.new.address
        successor = self._plan.new.document["instance"]
        await self._admin.change_role(old, "SLAVE", self._plan.new_id, successor=successor)
        ours, theirs = (await self._status(old))["logEnd"], (await self._status(new))["logEnd"]
        if ours != theirs:
            raise SwitchFailed(f"{new} ends at {theirs}, {ours - theirs} bytes before {old}")

    async def _promote(self) -> None:
        await self._admin.change_role(self._plan.new.address, self._plan.role)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`; if it fails, make the old master master again, unless the new one is by now."""
        try:
            await work()
        except (*REQUEST_FAILURES, KeyError) as error:
            if await self._role(self._plan.new.address) in (None, "SLAVE"):
                reason = error.remark if isinstance(error, BrokerRefused) else error
                raise await self._undo(f"the switch failed at `{what}`: {reason}") from error
            self._tell(f"   an answer was lost ({error}), but {self._plan.new.address} is master")

    async def _undo(self, problem: str) -> SwitchFailed:
        plan, old = self._plan, self._plan.old.address
        if await self._role(old) == plan.role:
            return SwitchFailed(f"{problem}. Nothing has changed: {old} is master")
        try:
            await self._admin.change_role(old, plan.role)
        except REQUEST_FAILURES as error:
            return SwitchFailed(
                f"{problem}. {plan.name} has NO MASTER now, and {old} could not be made master again: {error}. Nothing "
                f"acknowledged is lost. Type: {self._command(old)}"
            )
        return SwitchFailed(f"{problem}. {old} is master again, as before; nothing is lost")

    async def _until_following(self) -> None:
        plan, following = self._plan, dict[str, Any]()
        deadline = time.monotonic() + _FOLLOW_S_MAX
        while time.monotonic() < deadline:
            try:
                following = (await self._status(plan.old.address)).get("following", {})
            except REQUEST_FAILURES as error:
                following = {"reason": str(error)}
            if following.get("state") == "following":
                return
            await asyncio.sleep(_POLL_S)
        raise SwitchFailed(
            f"{plan.new.address} is the master of {plan.name} now and takes messages, but {plan.old.address} does not "
            f"follow it: {following.get('reason') or following.get('state')}. Type: twinlog replication status "
            f"-n '{self._names}'"
        )

    async def _compare(self) -> tuple[int, int]:
        """The range of both logs that was compared: the last 64 MiB."""
        old, new = self._plan.old.address, self._plan.new.address
        ours, theirs = await self._status(old), await self._status(new)
        end = min(ours["logEnd"], theirs["logEnd"])
        begin = max(ours["logStart"], theirs["logStart"], end - RANGE_BYTES_MAX)
        if begin >= end:
            return begin, begin
        digests = [await self._admin.log_digest(one, begin, end) for one in (old, new)]
        if digests[0] != digests[1]:
            raise SwitchFailed(
                f"{new} is the master of {self._plan.name} now, but its log differs from that of {old} between {begin} "
                f"and {end}. Stop {old}, keep its store, and type: twinlog admin verifyReplica -b {new} -r {old} "
                f"-n '{self._names}'"
            )
        return begin, end

    # -- helpers -------------------------------------------------------------------------------

    async def _status(self, address: str) -> dict[str, Any]:
        return await self._admin.replication_status(address) or {}

    async def _role(self, address: str) -> str | None:
        """The role of the broker at `address` now; None if it does not answer."""
        try:
            return (await self._status(address)).get("role")
        except REQUEST_FAILURES:
            return None

    def _command(self, address: str) -> str:
        return f"twinlog replication change-role -b {address} --role {self._plan.role} -n '{self._names}'"


def _group(groups: Sequence[Group], name: str | None) -> Group:
    known = sorted({one.name for one in groups})
    found = [one for one in groups if name in (None, one.name)]
    if not known:
        raise SwitchRefused("no brokers are registered with these name servers")
    if not found:
        raise SwitchRefused(f"no broker has the name {name}; there are: {', '.join(known)}")
    if len(found) > 1:
        whose = "name one of them: " + ", ".join(known) if name is None else "name its cluster with -c"
        raise SwitchRefused(f"{len(found)} groups of brokers are registered; {whose}")
    return found[0]


def _replica(group: Group, to: str | None) -> Member:
    addresses = ", ".join(one.address for one in group.replicas)
    if not group.replicas:
        raise SwitchRefused(f"{group.name} has no replica: nobody can take over; start one with brokerRole=SLAVE")
    if to is None and len(group.replicas) > 1:
        raise SwitchRefused(f"{group.name} has several replicas; choose with --to: {addresses}")
    found = [one for one in group.replicas if to in (None, one.address)]
    if not found:
        raise SwitchRefused(f"{to} is not a replica of {group.name}; its replicas are: {addresses}")
    return found[0]


def _check_near(group: Group, replica: Member) -> None:
    lag, following = group.lags.get(replica.broker_id), replica.document.get("following", {})
    wait = "wait until it has caught up: twinlog replication status --watch"
    if following.get("state") != "following":
        why = following.get("reason") or replica.error or following.get("state") or "it has no master"
        raise SwitchRefused(f"{replica.address} does not follow its master: {why}")
    if lag is None or lag.bytes is None or not lag.in_sync:
        raise SwitchRefused(f"{replica.address} is not in sync with its master; {wait}")
    if lag.bytes > NEAR_BYTES_MAX:
        raise SwitchRefused(
            f"{replica.address} is {lag.bytes / MIB:.0f} MiB behind, and nobody would take messages until it has them "
            f"(at most {NEAR_BYTES_MAX // MIB} MiB); {wait}"
        )
