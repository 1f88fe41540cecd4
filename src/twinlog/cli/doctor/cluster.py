"""Checks of name servers, brokers and etcd, as they answer; the judgements are functions without I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.doctor.findings import Finding, error, ok, warning
from twinlog.client import Admin, ClientOptions
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.failover.etcd import Etcd, EtcdError
from twinlog.failover.records import RecordBroken
from twinlog.observe.cluster.broker_groups import Group, gather_groups
from twinlog.observe.replicas.failover_groups import Found, Place, find_groups
from twinlog.settings.errors import SettingsError
from twinlog.settings.failover import FailoverSettings
from twinlog.wire.codes import ResponseCode

_SKEW_MS_WARNING, _SKEW_MS_ERROR = 1_000, 10_000
_QUORUM_MIN = 3


async def check_name_servers(
    addresses: Sequence[str], options: ClientOptions, *, brokers_expected: bool = True
) -> tuple[list[Group], list[Finding]]:
    """The groups of brokers, from the first name server that answers, and which ones do not."""
    groups, silent = list[Group](), list[Finding]()
    answered = False
    for address in addresses:
        async with Admin(address, options=options) as admin:
            try:
                found = await gather_groups(admin)
            except (*REQUEST_FAILURES, OSError) as problem:
                todo = _without_account(str(problem)) or f"start it (`twinlog namesrv`), or correct {address}"
                silent.append(error("name server", str(problem), todo))
                continue
        groups = groups or found
        answered = True
    if answered and not groups and brokers_expected:
        silent.append(error("name server", "no broker is registered", "start one with the same namesrvAddr"))
    good = len(addresses) - sum(one.what != "no broker is registered" for one in silent)
    return groups, [*silent, *([ok("name server", f"{good} of {len(addresses)} answer")] if answered else [])]


def judge_group(group: Group) -> Iterator[Finding]:
    """What is wrong with the replication of one group."""
    area, master = f"replication of {group.name}", group.master
    if master is None:
        yield error(area, "there is no master: nobody takes messages", "start it, or `twinlog replication change-role`")
        return
    if master.kind == "silent":
        todo = "start it again, or make a replica master with `twinlog replication change-role`"
        todo = _without_account(master.error) or todo
        yield error(area, f"the master {master.address} does not answer: {master.error}", todo)
        return
    healthy = 0
    for replica in group.replicas:
        lag, following = group.lags.get(replica.broker_id), replica.document.get("following", {})
        what = f"replica {replica.broker_id} at {replica.address}"
        if replica.kind == "silent":
            todo = _without_account(replica.error) or "start it, or look at its log"
            yield error(area, f"{what} does not answer: {replica.error}", todo)
        elif following.get("state") == "refused":
            yield error(area, f"{what} does not follow: {following.get('reason')}", "do what the reason says")
        elif lag is None or not lag.in_sync:
            behind = "" if lag is None or lag.bytes is None else f", {lag.bytes} bytes behind"
            todo = f"see `twinlog replication status -b {replica.address}`; wait if it catches up"
            yield warning(area, f"{what} is not in sync{behind}", todo)
        else:
            healthy += 1
    if master.role == "SYNC_MASTER" and not healthy:
        yield error(
            area, "the master waits for replicas, and no replica is in sync", "start a replica, or mend its link"
        )
    for member in group.members:
        for task, one in member.document.get("failedTasks", {}).items():
            text = f"{task} of {member.address} failed {one.get('failures')} times: {one.get('error')}"
            yield warning(area, text, "look at the broker's log")
    if healthy == len(group.replicas) and healthy:
        what = "1 replica is" if healthy == 1 else f"{healthy} replicas are"
        yield ok(area, f"{what} in sync with {master.address}")
    elif not group.replicas:
        yield warning(area, f"{master.address} has no replica", "its messages are lost with its disk; add a replica")


def _without_account(problem: str | None) -> str | None:
    """What to do about a server that runs, and refuses who asks; None for other problems."""
    if problem is None or ResponseCode.NO_PERMISSION.name not in problem:
        return None
    return "it runs, and refuses this account; give a super account with --access-key and --secret-key"


async def check_clocks(groups: Sequence[Group], name_server: str, options: ClientOptions) -> list[Finding]:
    """How far the clocks of the Twinlog brokers are from this machine's."""
    found = list[Finding]()
    async with Admin(name_server, options=options) as admin:
        for member in (one for group in groups for one in group.members if one.kind == "twinlog"):
            asked_ms = wall_clock_ms()
            try:
                status = await admin.replication_status(member.address) or {}
            except REQUEST_FAILURES:
                continue  # it answered a moment ago: the next run finds out
            if (their_ms := status.get("nowMs")) is not None:
                found.append(judge_clock(member.address, their_ms - (asked_ms + wall_clock_ms()) // 2))
    return found


def judge_clock(address: str, skew_ms: int) -> Finding:
    text = f"the clock of {address} is {abs(skew_ms) / 1000:.1f} s {'ahead' if skew_ms > 0 else 'behind'}"
    todo = "start a time service (chrony, ntpd) on both machines: delayed messages and retention use the clock"
    if abs(skew_ms) > _SKEW_MS_ERROR:
        return error("clock", text, todo)
    if abs(skew_ms) > _SKEW_MS_WARNING:
        return warning("clock", text, todo)
    return ok("clock", f"{address} agrees with this machine")


async def check_etcd(settings: FailoverSettings, cluster: str | None, name: str | None) -> list[Finding]:
    """Whether each endpoint answers, and what is wrong with the group's keys."""
    found = list[Finding]()
    for endpoint in settings.endpoints:
        began = time.monotonic()
        try:
            one = Etcd([endpoint], timeout_s=3.0, user=settings.etcd_user, password=settings.etcd_password)
            if settings.etcd_ca is None:
                await one.read(f"{settings.etcd_prefix}/doctor")
                found.append(ok("etcd", f"{endpoint} answers in {1000 * (time.monotonic() - began):.0f} ms"))
        except EtcdError as problem:
            found.append(error("etcd", str(problem), f"start etcd at {endpoint}, or correct failoverEtcd"))
    if len(settings.endpoints) < _QUORUM_MIN:
        text = f"{len(settings.endpoints)} endpoints: without a majority of them the master stops"
        found.append(warning("etcd", text, "run three, on different machines"))
    try:
        groups = await find_groups(Place(settings, cluster, name))
    except (EtcdError, RecordBroken, SettingsError) as problem:
        if not any(one.level == "error" for one in found):
            found.append(error("etcd", str(problem), "see `twinlog failover list`"))
        return found
    if not groups:
        found.append(warning("failover", f"etcd knows no group {name or ''}", "start its brokers"))
    return [*found, *(one for group in groups for one in judge_failover(group))]


def judge_failover(found: Found) -> Iterator[Finding]:
    """What is wrong with one group that has automatic failover."""
    keys, area = found.keys, f"failover of {found.name}"
    in_sync = set(keys.in_sync.members) if keys.in_sync is not None else set[str]()
    if keys.leader is None:
        todo = f"see `twinlog failover list {found.name}`, and the brokers' logs"
        yield error(area, "nobody is master", todo)
    if keys.pause is not None:
        yield warning(area, "it is paused: nobody takes over", f"twinlog failover resume {found.name}")
    for member, one in keys.members.items():
        if in_sync and member not in in_sync:
            yield warning(area, f"{one.address} is not in sync", "wait if it catches up, else look at its log")
    standby = (in_sync & keys.members.keys()) - ({keys.leader.member} if keys.leader is not None else set())
    if keys.leader is not None and not standby:
        yield error(area, "no replica could take over without loss", "start another broker of this group")
    elif keys.leader is not None:
        yield ok(area, f"{keys.leader.address} is master, {len(standby)} could take over")
