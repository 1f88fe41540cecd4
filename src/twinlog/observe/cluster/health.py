"""Whether a broker, a replica or a group is well, with the reason in words. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member
from twinlog.observe.units import bytes_text, percent_text

DISK_SHARE_WARNING, DISK_SHARE_CRITICAL = 0.85, 0.90  # from here on RocketMQ deletes early, and refuses sends


class Level(IntEnum):
    """In the order of urgency."""

    OK = 0
    UNKNOWN = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return ("healthy", "unknown", "attention", "unhealthy")[self]


@dataclass(frozen=True, slots=True)
class Health:
    level: Level
    reason: str

    @property
    def is_ok(self) -> bool:
        return self.level is Level.OK


def worst(healths: Iterable[Health], otherwise: str) -> Health:
    """The most urgent of them with its reason; OK with `otherwise` when nothing is wrong."""
    found = sorted((one for one in healths if not one.is_ok), key=lambda one: -one.level)
    if not found:
        return Health(Level.OK, otherwise)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Health(found[0].level, found[0].reason + more)


def judge_broker(member: Member, *, is_registered: bool = True) -> Health:
    """What can be said about one broker alone."""
    if not is_registered:
        return Health(Level.CRITICAL, "it is not registered any more: it stopped, or lost its name servers")
    if member.kind == "silent":
        return Health(Level.CRITICAL, f"it does not answer: {member.error}")
    share = disk_share(member)
    disk = f"its disk is {percent_text(share)} full"
    if share is not None and share >= DISK_SHARE_CRITICAL:
        return Health(Level.CRITICAL, f"{disk}: sends are refused from {percent_text(DISK_SHARE_CRITICAL)} on")
    paused = [name for name, one in member.document.get("failedTasks", {}).items() if one.get("paused")]
    if paused:
        return Health(Level.WARNING, f"its task {paused[0]} fails: see the broker's log")
    if share is not None and share >= DISK_SHARE_WARNING:
        return Health(Level.WARNING, f"{disk}: old messages are deleted before their time")
    return Health(Level.OK, "it answers")


def judge_replica(replica: Member, lag: LagFacts | None, master: Member | None) -> Health:
    """Whether a replica that answers follows its master."""
    following = replica.document.get("following", {})
    state, reason = following.get("state"), following.get("reason")
    if state == "refused":
        return Health(Level.CRITICAL, f"it refuses to follow: {reason}")
    if master is None or master.kind == "silent":
        return Health(Level.WARNING, "it has no master to follow")
    if state is not None and state != "following":
        return Health(Level.WARNING, f"it does not follow yet ({state}){': ' + reason if reason else ''}")
    if lag is None:
        return Health(Level.UNKNOWN, "its lag is unknown")
    behind = "" if lag.bytes is None else f"; {bytes_text(lag.bytes)} behind"
    if lag.counted_out:
        return Health(Level.WARNING, f"it does not keep up, and its master does not wait for it{behind}")
    if lag.in_sync is False:
        return Health(Level.WARNING, f"it is not in sync{behind}")
    failed = [f"{kind}: {one['error']}" for kind, one in replica.document.get("metadata", {}).items() if one["error"]]
    if failed:
        return Health(Level.WARNING, f"its metadata is not synchronised: {failed[0]}")
    return Health(Level.OK, "it is in sync" if lag.in_sync else f"it answers{behind}; whether it follows is unknown")


def judge_group(group: Group, members: Iterable[tuple[Member, Health]]) -> Health:
    """The state of a master and its replicas together."""
    master, found = group.master, list[Health]()
    if master is None:
        found.append(Health(Level.CRITICAL, "there is no master: nobody takes messages"))
    for member, health in members:
        who = "the master" if member is master else f"replica {member.broker_id}"
        found.append(Health(health.level, f"{who} at {member.address}: {health.reason}"))
    replicas = len(group.replicas)
    if not replicas:
        return worst(found, "one copy only: there is no replica")
    what = "the replica is" if replicas == 1 else f"all {replicas} replicas are"
    known = all((lag := group.lags.get(one.broker_id)) is not None and lag.in_sync for one in group.replicas)
    return worst(found, f"{what} in sync" if known else f"{what} there; whether in sync is unknown")


def disk_share(member: Member) -> float | None:
    """How full the disk of the commit log is, 0 to 1."""
    try:
        share = float(member.runtime["commitLogDiskRatio"])
    except (KeyError, ValueError):
        return None
    return share if 0 <= share <= 1 else None
