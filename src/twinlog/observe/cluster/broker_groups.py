"""Asks all brokers of a cluster, Twinlog's and Java's, for the state of their replication.

All brokers are asked at the same time, at most AT_ONCE_MAX of them, so one that hangs delays nobody else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.base.clock import wall_clock_ms
from twinlog.client import Admin, BrokerRefused, ClientError, NetError
from twinlog.client.admin.calls import named_brokers
from twinlog.client.admin.lag_estimate import LagEstimate
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.observe.cluster.status_shape import checked_status
from twinlog.wire.bodies import HaConnectionInfo, HaRuntimeInfo

AT_ONCE_MAX = 32
_RECORDS_S_MAX = 2.0  # the others wait for the slowest master


@dataclass(slots=True)
class Member:
    """One broker: its answers, or the error."""

    broker_id: int
    address: str
    kind: str = "silent"  # twinlog, java
    document: dict[str, Any] = field(default_factory=dict[str, Any])
    log_start: int | None = None
    log_end: int | None = None
    error: str = ""
    runtime: dict[str, str] = field(default_factory=dict[str, str])  # what brokerStatus prints, if it was asked for

    @property
    def role(self) -> str:
        return self.document.get("role") or ("MASTER" if self.broker_id == 0 else "SLAVE")


@dataclass(frozen=True, slots=True)
class LagFacts:
    """How far a replica is behind; None where it is unknown."""

    bytes: int | None = None
    messages: int | None = None
    messages_exact: bool = True
    ms: int | None = None
    in_sync: bool | None = None
    bytes_per_second: int | None = None
    counted_out: bool = False  # its master waits for it no more: it is late, or does not catch up
    acked: int | None = None  # the master knows that the replica has the log up to here


@dataclass(slots=True)
class Group:
    """The master and the replicas with one broker name."""

    cluster: str
    name: str
    members: list[Member]
    lags: dict[int, LagFacts] = field(default_factory=dict[int, LagFacts])  # by broker id

    @property
    def master(self) -> Member | None:
        return next((one for one in self.members if one.broker_id == 0), None)

    @property
    def replicas(self) -> list[Member]:
        return [one for one in self.members if one.broker_id != 0]


async def gather_groups(admin: Admin, cluster: str | None = None, broker: str | None = None) -> list[Group]:
    """All groups of the cluster (by default of all clusters), or the group of the broker at this address."""
    try:
        groups = await registered_groups(admin, cluster)
    except (ClientError, NetError):
        if broker is None:
            raise
        return [await _lone_group(admin, broker)]
    if broker is not None:
        groups = [one for one in groups if any(member.address == broker for member in one.members)]
        if not groups:
            return [await _lone_group(admin, broker)]
    await ask_groups(admin, groups)
    return groups


async def registered_groups(admin: Admin, cluster: str | None = None) -> list[Group]:
    """The groups that the name server has; their brokers have not been asked yet."""
    info, groups = await admin.cluster_info(), list[Group]()
    for each, name in named_brokers(info, cluster):
        known = info.broker_addr_table.get(name)  # a Java name server may keep the name for a moment
        addresses = known.broker_addrs if known is not None else {}
        groups.append(Group(each, name, [Member(number, address) for number, address in sorted(addresses.items())]))
    return groups


async def ask_groups(
    admin: Admin, groups: Sequence[Group], *, with_runtime: bool = False, java: Collection[str] = ()
) -> None:
    """Fill in the answers of all members. Those in `java` are not asked what only Twinlog brokers answer."""
    places = asyncio.Semaphore(AT_ONCE_MAX)

    async def ask(member: Member) -> None:
        async with places:
            await _ask_member(admin, member, with_runtime=with_runtime, is_java=member.address in java)

    async def measure(group: Group) -> None:
        async with places:
            await _measure(admin, group)

    await asyncio.gather(*(ask(member) for group in groups for member in group.members))
    await asyncio.gather(*(measure(group) for group in groups))


async def _lone_group(admin: Admin, address: str) -> Group:
    """A broker that is not registered, with the master it follows."""
    member = Member(0, address)
    await _ask_member(admin, member)
    member.broker_id = member.document.get("brokerId", 0)
    members = [member]
    master = member.document.get("masterAddress")
    if master and master != address:
        members.insert(0, Member(0, master))
        await _ask_member(admin, members[0])
    document = member.document
    group = Group(document.get("clusterName", ""), document.get("brokerName", address), members)
    await _measure(admin, group)
    return group


async def _ask_member(admin: Admin, member: Member, *, with_runtime: bool = False, is_java: bool = False) -> None:
    address = member.address
    try:
        document = None if is_java else await admin.replication_status(address)
        if document is None or with_runtime:
            member.runtime = await admin.runtime_info(address)
        if document is not None:
            member.kind, member.document = "twinlog", checked_status(document)
            member.log_start, member.log_end = document["logStart"], document["logEnd"]
            return
        member.kind, info = "java", member.runtime
        member.log_start, member.log_end = _offset(info, "commitLogMinOffset"), _offset(info, "commitLogMaxOffset")
        try:
            member.document = {"ha": await admin.ha_status(address)}
        except BrokerRefused:  # 4.9 has no such request
            member.document = {}
    except KeyError as error:
        member.kind, member.error = "silent", f"its answer has no {error}"
    except (*REQUEST_FAILURES, ValueError) as error:
        member.kind, member.error = "silent", str(error)


def _offset(info: Mapping[str, str], key: str) -> int:
    value = int(info[key])
    if not -1 <= value < 2**63:
        raise ValueError(f"its {key} is not an offset: {info[key][:40]}")
    return max(0, value)


async def _measure(admin: Admin, group: Group) -> None:
    master = group.master
    for replica in group.replicas:
        if master is None or master.log_end is None or (replica.log_end is None and master.kind != "twinlog"):
            continue
        if replica.document.get("following", {}).get("state") == "refused":
            group.lags[replica.broker_id] = LagFacts(in_sync=False)  # its log is another one: a lag means nothing
            continue
        view = _view_of(master, replica, group)
        if view is not None:
            group.lags[replica.broker_id] = LagFacts(
                view["lagBytes"],
                view["lagMessages"],
                view["lagMessagesExact"],
                view["lagMs"],
                view["inSync"],
                view["bytesPerSecond"],
                view.get("late", False) or view.get("behind", False),
                view.get("acked"),
            )
        elif replica.log_end is None:
            continue
        elif master.kind == "java":
            group.lags[replica.broker_id] = await _ask_java(admin, master, replica, _java_link(master, replica, group))
        else:
            group.lags[replica.broker_id] = LagFacts(max(0, master.log_end - replica.log_end), in_sync=False)


def _view_of(master: Member, replica: Member, group: Group) -> dict[str, Any] | None:
    """The Twinlog master's row for this replica. A Java replica has no id: its row is found if it is the only one."""
    views = [view for view in master.document.get("replicas", []) if not view["observer"]]
    if replica.kind == "twinlog":
        instance = replica.document.get("instance")
        return next((view for view in views if view["identity"] == instance), None)
    if replica.kind == "silent":  # a stopped process keeps its connection
        return next((view for view in views if view.get("brokerId") == replica.broker_id), None)
    unnamed = [view for view in views if view["identity"] is None]
    java = [one for one in group.replicas if one.kind == "java"]
    return unnamed[0] if len(unnamed) == len(java) == 1 else None


def _java_link(master: Member, replica: Member, group: Group) -> HaConnectionInfo | None:
    """A Java 5 master's row for a replica. It names a host and a port of the moment, so the host must be unique."""
    info: HaRuntimeInfo | None = master.document.get("ha")
    hosts = [_host(one.address) for one in group.replicas]
    if info is None or hosts.count(_host(replica.address)) != 1:
        return None
    links = [one for one in info.ha_connection_info if _host(one.addr.removeprefix("/")) == _host(replica.address)]
    return links[0] if len(links) == 1 else None


def _host(address: str) -> str:
    return address.rpartition(":")[0]


async def _ask_java(admin: Admin, master: Member, replica: Member, link: HaConnectionInfo | None) -> LagFacts:
    """The lag behind a Java master, which does not count messages: estimated from the first missing records."""
    assert master.log_end is not None and replica.log_end is not None
    behind = max(0, master.log_end - replica.log_end)
    following = replica.document.get("following")
    linked, rate, acked = None, None, None  # a Java replica of 4.9: nobody says whether it is connected
    if following is not None:
        linked, rate = following.get("state") == "following", following.get("bytesPerSecond")
    if link is not None:
        linked, acked = link.in_sync if linked is None else linked, link.slave_ack_offset
        rate = link.transferred_byte_in_second if rate is None else rate
    elif linked is None and "ha" in master.document and not master.document["ha"].ha_connection_info:
        linked = False
    if behind == 0:
        return LagFacts(0, 0, True, 0, linked, rate, acked=acked)
    estimate = LagEstimate(replica.log_end, master.log_end)
    try:
        until_s = time.monotonic() + _RECORDS_S_MAX
        while (at := estimate.wanted) is not None and time.monotonic() < until_s:
            estimate.take(await admin.log_record(master.address, at))
    except REQUEST_FAILURES:  # the master stopped meanwhile
        return LagFacts(behind, in_sync=linked, bytes_per_second=rate, acked=acked)
    now_ms, oldest_ms = replica.document.get("nowMs", wall_clock_ms()), estimate.oldest_ms
    ms = None if oldest_ms is None else max(0, now_ms - oldest_ms)
    return LagFacts(behind, estimate.messages, estimate.is_exact, ms, linked, rate, acked=acked)
