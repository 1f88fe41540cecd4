"""All brokers of a cluster at one moment: who they are, what they do, how they are. No I/O."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from twinlog.observe.cluster.broker_groups import Group, Member
from twinlog.observe.cluster.health import Health, Level, disk_share, judge_broker, judge_group, judge_replica
from twinlog.observe.cluster.replica_view import ReplicaView, replica_view


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker; None where it does not say, or did not answer."""

    cluster: str
    name: str
    broker_id: int
    address: str
    kind: str  # twinlog, java; silent if it does not answer
    role: str
    version: str | None
    puts_per_second: float | None  # messages, over the last ten seconds
    gets_per_second: float | None
    put_today: int | None  # messages since midnight
    got_today: int | None
    disk_share: float | None  # 0 to 1
    uptime_ms: int | None
    log_start: int | None
    log_end: int | None
    is_registered: bool
    health: Health

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def software(self) -> str | None:
        """`Twinlog`, with RocketMQ's version that it speaks; None if it did not answer."""
        if self.kind == "silent":
            return None
        name = "Twinlog" if self.kind == "twinlog" else "RocketMQ"
        return f"{name} {self.version}" if self.version else name


@dataclass(frozen=True, slots=True)
class GroupView:
    """A master and its replicas."""

    cluster: str
    name: str
    brokers: tuple[BrokerView, ...]
    replicas: tuple[ReplicaView, ...]
    epoch: int | None
    has_failover: bool  # etcd decides who is master
    health: Health

    @property
    def master(self) -> BrokerView | None:
        return next((one for one in self.brokers if one.is_master), None)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one round of questions found."""

    at_ms: int
    groups: tuple[GroupView, ...] = ()
    error: str = ""  # why the name servers could not be asked; then these are the brokers of before

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        return tuple(broker for group in self.groups for broker in group.brokers)

    @property
    def unhealthy(self) -> tuple[GroupView, ...]:
        """The worst first."""
        found = (one for one in self.groups if one.health.level >= Level.WARNING)
        return tuple(sorted(found, key=lambda one: -one.health.level))

    def group(self, cluster: str, name: str) -> GroupView | None:
        return next((one for one in self.groups if (one.cluster, one.name) == (cluster, name)), None)


def cluster_view(groups: Sequence[Group], now_ms: int, gone: Collection[str] = (), error: str = "") -> ClusterView:
    """`gone` has the addresses of brokers that were registered before, and are no longer."""
    return ClusterView(now_ms, tuple(group_view(one, now_ms, gone) for one in groups), error)


def group_view(group: Group, now_ms: int, gone: Collection[str] = ()) -> GroupView:
    master = group.master
    judged = [(one, _judge(one, group, is_registered=one.address not in gone)) for one in group.members]
    brokers = tuple(
        _broker_view(group, one, health, now_ms, is_registered=one.address not in gone) for one, health in judged
    )
    health_of = {member.address: health for member, health in judged}
    replicas = tuple(replica_view(one, group.lags.get(one.broker_id), health_of[one.address]) for one in group.replicas)
    epochs = (one.document.get("epoch") for one in group.members)
    return GroupView(
        cluster=group.cluster,
        name=group.name,
        brokers=brokers,
        replicas=replicas,
        epoch=_newest(epochs) if master is None else master.document.get("epoch"),
        has_failover=any(one.document.get("failover") for one in group.members),
        health=judge_group(group, judged),
    )


def _judge(member: Member, group: Group, *, is_registered: bool) -> Health:
    alone = judge_broker(member, is_registered=is_registered)
    if member is group.master or alone.level >= Level.WARNING:
        return alone
    return judge_replica(member, group.lags.get(member.broker_id), group.master)


def _broker_view(group: Group, member: Member, health: Health, now_ms: int, *, is_registered: bool) -> BrokerView:
    info = member.runtime
    boot_ms = _integer(info.get("bootTimestamp"))
    return BrokerView(
        cluster=group.cluster,
        name=group.name,
        broker_id=member.broker_id,
        address=member.address,
        kind=member.kind,
        role=member.role,
        version=info.get("twinlogVersion") or version_number(info.get("brokerVersionDesc")),
        puts_per_second=first_number(info.get("putTps")),
        gets_per_second=first_number(info.get("getTransferredTps")),
        put_today=_since_morning(info, "Put"),
        got_today=_since_morning(info, "Get"),
        disk_share=disk_share(member),
        uptime_ms=None if boot_ms is None else max(0, now_ms - boot_ms),
        log_start=member.log_start,
        log_end=member.log_end,
        is_registered=is_registered,
        health=health,
    )


def version_number(text: str | None) -> str | None:
    """`5.5.0` of Java's `V5_5_0`; another text as it is."""
    if text is None or not text.startswith("V"):
        return text
    return text[1:].replace("_", ".")


def first_number(text: str | None) -> float | None:
    """The first of Java's rates, which are for the last 10 s, minute and ten minutes."""
    words = (text or "").split()
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if 0 <= value < math.inf else None


def _since_morning(info: dict[str, str], direction: str) -> int | None:
    now, morning = (_integer(info.get(f"msg{direction}Total{when}")) for when in ("TodayNow", "TodayMorning"))
    return None if now is None or morning is None else max(0, now - morning)


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _newest(epochs: Iterable[int | None]) -> int | None:
    return max((one for one in epochs if one is not None), default=None)
