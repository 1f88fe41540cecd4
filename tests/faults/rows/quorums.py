"""Automatic failover with three etcd processes: some of them are killed, or the network of a process is cut."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from tests.faults.etcd_cluster import MEMBERS
from tests.faults.failover_group import NAMES, ThreeEtcds
from tests.faults.group import TWINLOG
from tests.faults.history import Outcome
from tests.faults.load import Load
from tests.faults.machine import small_disk
from tests.faults.network import Network
from tests.faults.rows.disks import fill

LEASE_S = 4.0
ALONE_S = 2.0  # a leader of etcd without the others renews leases for so long before it notices
ETCD_DISK_MB = 160  # it takes 128 MB for its next writes at its start
MACHINES = (*NAMES, *MEMBERS, "names")


def etcd_members(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, away_s: float = 20, **more: str) -> str:
    """One, then two, then all three members of etcd are killed under load, and come back after a while.

    With a quorum sends go on. Without one they stop before the lease ends, and go on by themselves when it is back.
    Seen to fail with a lease that is taken as valid for ever, by `View.has_lease` and by the guard.
    """
    assert side == TWINLOG
    dice, stopped_s = random.Random(seed), list[float]()
    with ThreeEtcds.at(home, **more) as group:
        load = Load(group.group.names.address, seed)
        with load.running():
            for _ in range(rounds):
                for count in (1, 2, 3):
                    stopped_s += _kill_members(group, load, dice.sample(MEMBERS, count), away_s)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
        epochs = [one.epoch for one in group.history()]
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert epochs == sorted(set(epochs)), f"an epoch had two masters: {epochs}"
    back = [took for (_, what), took in zip(load.history.faults, verdict.recovery_s, strict=True) if "1 of" not in what]
    text = f"{verdict}; {len(epochs)} epochs; without a quorum the last send was acknowledged at most"
    return f"{text} {max(stopped_s):.1f} s after the kill, the next one at most {max(back):.1f} s after etcd's return"


def _kill_members(group: ThreeEtcds, load: Load, victims: list[str], away_s: float) -> list[float]:
    """Seconds from the kill to the last acknowledged send, if there was no quorum."""
    load.go_on(50)
    group.etcds.kill(*victims)
    killed = time.monotonic()
    if len(victims) == 1:
        load.history.fault(killed, "1 of etcd killed")
        load.go_on(50)
    time.sleep(away_s)
    returning = time.monotonic()
    ends = [one.ended for one in list(load.history.sends) if one.outcome is Outcome.ACKNOWLEDGED]
    stopped_s = max(ends) - killed
    group.etcds.back(*victims)
    if len(victims) > 1:
        load.history.fault(returning, f"{len(victims)} of etcd back")
        assert stopped_s < LEASE_S + ALONE_S, (
            f"a send was acknowledged {stopped_s:.1f} s after etcd lost its quorum; {load.history}"
        )
    load.go_on(20, 90)
    group.in_sync(3, 90)
    return [stopped_s] if len(victims) > 1 else []


def full_disks(home: Path, seed: int, side: str = TWINLOG, rounds: int = 2, full_s: float = 20, **more: str) -> str:
    """The disk of one member of etcd becomes full under load, then those of all three, and they get space again.

    With two members left sends go on. A member that ended on its full disk is started again, as its supervisor would
    do it; then sends go on. No broker ends, and nothing acknowledged is lost. Answers without etcd name it: seen to
    fail when `why_refused` is not given to the broker.
    """
    assert side == TWINLOG
    ended, reasons = 0, set[str]()
    with contextlib.ExitStack() as stack:
        disks = {name: stack.enter_context(small_disk(home / "etcd" / name, ETCD_DISK_MB)) for name in MEMBERS}
        group = stack.enter_context(ThreeEtcds.at(home, **more))
        load = Load(group.group.names.address, seed)
        with load.running():
            for victims in (MEMBERS[:1], MEMBERS) * rounds:
                load.go_on(50)
                marks = len(load.history.sends)
                for name in victims:
                    fill(disks[name] / "filler")
                if len(victims) == 1:
                    load.go_on(50)
                time.sleep(full_s)
                reasons |= answers_meanwhile(load, marks)
                for name in victims:
                    (disks[name] / "filler").unlink()
                load.history.fault(time.monotonic(), f"space for {len(victims)} of etcd")
                ended += group.etcds.start_ended()
                load.go_on(50, 90)
                group.in_sync(3, 90)
                assert not any(one.has_ended for one in group.group.brokers.values()), "a broker ended"
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
    assert not verdict.broken, f"{load.history}: {verdict}"
    after = ", ".join(f"{took:.1f}" for took in verdict.recovery_s)
    said = sorted({reason[:200] for reason in reasons})
    return f"{verdict}; etcd ended {ended} times; sends {after} s after space returned; answers meanwhile: {said}"


def answers_meanwhile(load: Load, first: int) -> set[str]:
    """Codes and remarks since send number `first`: each names etcd, or a master to send to."""
    said = {one.reason for one in load.history.sends[first:] if one.reason.startswith("code")}
    silent = [reason for reason in said if not any(word in reason for word in ("etcd", "the master is", "in-sync"))]
    assert not silent, f"answers without a reason: {silent}"
    return said


def failover_partition(
    home: Path,
    seed: int,
    side: str = TWINLOG,
    seconds: float = 30,
    victims: str = "leader replica etcd etcd-peers names",
    ways: str = "both out in",
    **more: str,
) -> str:
    """The network of one process is cut, both ways, or what it sends, or what it receives; producers still reach it.

    Another load sends to the old master whatever the route says. No place is acknowledged in two epochs, nothing is
    lost, and sends go on during each cut. `etcd` is the leader of etcd; `etcd-peers` cuts it off from the other two
    only, so that brokers still reach it. Seen to fail with an `AckRule.end` that returns the end of the log.
    """
    assert side == TWINLOG
    with Network.of(*MACHINES) as network, ThreeEtcds.at(home, network.places(), **more) as group:
        load = Load(group.group.names.address, seed, timeout_ms=4000)
        for victim in victims.split():
            for way in ways.split():
                cut_once(group, network, load, victim, way, seconds)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
        epochs = [one.epoch for one in group.history()]
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert epochs == sorted(set(epochs)), f"an epoch had two masters: {epochs}"
    named = zip(load.history.faults, verdict.recovery_s, strict=True)
    after = ", ".join(f"{what} {took:.1f}" for (_, what), took in named)
    return f"{verdict}; {len(epochs)} epochs; seconds from each cut to the next acknowledged send: {after}"


def cut_once(group: ThreeEtcds, network: Network, load: Load, victim: str, way: str, seconds: float) -> None:
    leader = group.leader()
    name = victim
    if victim in ("leader", "replica"):
        name = leader if victim == "leader" else next(one for one in NAMES if one != leader)
    elif victim.startswith("etcd"):
        name = group.etcds.leader()
    ends = network.both_ways(name, MEMBERS if victim == "etcd-peers" else MACHINES)
    cut = [pair for pair in ends if way == "both" or (pair[0] == name) == (way == "out")]
    stubborn = Load(group.group.names.address, load.seed, timeout_ms=4000, direct=group.group.brokers[leader].address)
    stubborn.first_number, stubborn.history = 100 * (1 + len(load.history.faults)), load.history
    with load.running(), stubborn.running():
        load.go_on(50)
        with network.blocked(cut):
            began = time.monotonic()
            load.history.fault(began, f"{victim} {way}")
            if victim == "leader":
                group.leader(other_than=leader)
            load.go_on(50)
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        load.go_on(50, 120)
        group.in_sync(3, 120)
