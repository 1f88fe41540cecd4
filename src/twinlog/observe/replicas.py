"""Asks all brokers of a cluster, Twinlog's and Java's, for the state of their replication."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twinlog.client import Admin, BrokerRefused, ClientError, NetError
from twinlog.client.admin.calls import named_brokers
from twinlog.client.admin.lag_estimate import LagEstimate
from twinlog.client.errors import REQUEST_FAILURES


@dataclass(slots=True)
class Member:
    """One broker: its answers, or the error."""

    broker_id: int
    address: str
    kind: str = "silent"  # twinlog, java
    document: dict[str, Any] = field(default_factory=dict)
    log_start: int | None = None
    log_end: int | None = None
    error: str = ""

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


@dataclass(slots=True)
class Group:
    """The master and the replicas with one broker name."""

    cluster: str
    name: str
    members: list[Member]
    lags: dict[int, LagFacts] = field(default_factory=dict)  # by broker id

    @property
    def master(self) -> Member | None:
        return next((one for one in self.members if one.broker_id == 0), None)

    @property
    def replicas(self) -> list[Member]:
        return [one for one in self.members if one.broker_id != 0]


async def gather_groups(admin: Admin, cluster: str | None = None, broker: str | None = None) -> list[Group]:
    """All groups of the cluster (by default of all clusters), or the group of the broker at this address."""
    groups = []
    try:
        info = await admin.cluster_info()
    except (ClientError, NetError):
        if broker is None:
            raise
        return [await _lone_group(admin, broker)]
    for each, name in named_brokers(info, cluster):
        known = info.broker_addr_table.get(name)  # a Java name server may keep the name for a moment
        addresses = known.broker_addrs if known is not None else {}
        if broker is None or broker in addresses.values():
            members = [await _member(admin, number, address) for number, address in sorted(addresses.items())]
            groups.append(Group(each, name, members))
    if broker is not None and not groups:
        return [await _lone_group(admin, broker)]
    for group in groups:
        await _measure(admin, group)
    return groups


async def _lone_group(admin: Admin, address: str) -> Group:
    """A broker that is not registered, with the master it follows."""
    member = await _member(admin, 0, address)
    member.broker_id = member.document.get("brokerId", 0)
    members = [member]
    master = member.document.get("masterAddress")
    if master and master != address:
        members.insert(0, await _member(admin, 0, master))
    document = member.document
    group = Group(document.get("clusterName", ""), document.get("brokerName", address), members)
    await _measure(admin, group)
    return group


async def _member(admin: Admin, broker_id: int, address: str) -> Member:
    member = Member(broker_id, address)
    try:
        document = await admin.replication_status(address)
        if document is not None:
            member.kind, member.document = "twinlog", document
            member.log_start, member.log_end = document["logStart"], document["logEnd"]
            return member
        info = await admin.runtime_info(address)
        member.kind = "java"
        member.log_start, member.log_end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
        try:
            member.document = {"ha": await admin.ha_status(address)}
        except BrokerRefused:  # 4.9 has no such request
            member.document = {}
    except (*REQUEST_FAILURES, KeyError, ValueError) as error:
        member.error = str(error)
    return member


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
            )
        elif replica.log_end is None:
            continue
        elif master.kind == "java":
            group.lags[replica.broker_id] = await _ask_java(admin, master, replica)
        else:
            group.lags[replica.broker_id] = LagFacts(max(0, master.log_end - replica.log_end), in_sync=False)


def _view_of(master: Member, replica: Member, group: Group) -> dict[str, Any] | None:
    """The Twinlog master's row for this replica. A Java replica has no id: its row is found if it is the only one."""
    views = [view for view in master.document.get("replicas", []) if not view["observer"]]
    if replica.kind == "twinlog":
        instance = replica.document.get("instance")
        return next((view for view in views if view["identity"] == instance), None)
    if replica.kind == "silent":  # a stopped process keeps its connection
        return next((view for view in views if view["brokerId"] == replica.broker_id), None)
    unnamed = [view for view in views if view["identity"] is None]
    java = [one for one in group.replicas if one.kind == "java"]
    return unnamed[0] if len(unnamed) == len(java) == 1 else None


async def _ask_java(admin: Admin, master: Member, replica: Member) -> LagFacts:
    """The lag behind a Java master, which does not count messages: estimated from the first missing records."""
    assert master.log_end is not None and replica.log_end is not None
    behind = max(0, master.log_end - replica.log_end)
    following = replica.document.get("following", {})
    rate, linked = following.get("bytesPerSecond"), following.get("state") == "following"
    if behind == 0:
        return LagFacts(0, 0, True, 0, linked, rate)
    estimate = LagEstimate(replica.log_end, master.log_end)
    try:
        while (at := estimate.wanted) is not None:
            estimate.take(await admin.log_record(master.address, at))
    except REQUEST_FAILURES:  # the master stopped meanwhile
        return LagFacts(behind, in_sync=linked, bytes_per_second=rate)
    now_ms, oldest_ms = replica.document.get("nowMs"), estimate.oldest_ms
    ms = max(0, now_ms - oldest_ms) if now_ms is not None and oldest_ms is not None else None
    return LagFacts(behind, estimate.messages, estimate.is_exact, ms, linked, rate)
