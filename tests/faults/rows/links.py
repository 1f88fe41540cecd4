"""Networks that are cut, one way or both, and links that are slow."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.group import TWINLOG, Group
from tests.faults.load import Load
from tests.faults.network import Network
from tests.faults.rows.processes import promote
from tests.interop.replica_pair import log_end, until

NAMES = ("names", "master", "replica")
WAYS = ("both", "out", "in")


def partition(
    home: Path, seed: int, side: str = TWINLOG, seconds: float = 30, victims: str = "master replica names", ways="all"
) -> str:
    """The network of one process is cut, both ways, then only what it sends, then only what it receives.

    The other processes and the producers do not reach it meanwhile. Nothing acknowledged is lost, no place is promised
    twice, and sends go on after each. Seen to fail with a replica that does not connect again.
    """
    with Network.of(*NAMES) as network, Group(home, side, network.places()).running() as group:
        group.start_pair("SYNC_MASTER", slaveTimeout="3000")
        load = Load(group.names.address, seed, timeout_ms=4000)
        with load.running():
            for victim in victims.split():
                for way in WAYS if ways == "all" else ways.split():
                    load.go_on(30)
                    with network.blocked(_ways(network, victim, way)):
                        time.sleep(seconds)
                    load.history.fault(time.monotonic(), f"{victim} {way} is back")
                    load.go_on(30, 120)
        group.logs_equal(120)
        verdict = group.judge(load)
    assert not verdict.broken, f"{load.history}: {verdict}"
    named = zip(load.history.faults, verdict.recovery_s, strict=True)
    after = ", ".join(f"{what[:-8]} {seconds:.1f}" for (_, what), seconds in named)
    return f"{verdict}; seconds until sends: {after}"


def _ways(network: Network, victim: str, way: str) -> list[tuple[str, str]]:
    both = network.both_ways(victim)
    if way == "both":
        return both
    return [pair for pair in both if (pair[0] == victim) == (way == "out")]


def partition_promoted(home: Path, seed: int, side: str = TWINLOG, seconds: float = 30) -> str:
    """A SYNC master is cut off from its replica and the name server, not from its producers; the replica is promoted.

    What the old master acknowledges meanwhile would be lost, so it acknowledges nothing; after the network is back it
    becomes a replica. Seen to fail with inSyncReplicas=1.
    """
    with Network.of(*NAMES) as network, Group(home, side, network.places()).running() as group:
        group.start_pair("SYNC_MASTER", slaveTimeout="3000")
        group.knows_topic("replica")
        load = Load(group.names.address, seed, timeout_ms=4000)
        stubborn = Load(group.names.address, seed + 1, timeout_ms=4000, direct=group.master.address, first_number=100)
        stubborn.history = load.history
        with load.running():
            load.go_on(50)
        with stubborn.running():
            stubborn.go_on(20)
            with network.blocked(network.both_ways("master", ["replica", "names"])):
                cut = time.monotonic()
                promote(group, "replica", "ASYNC_MASTER")
                load.history.fault(cut, "the replica is promoted")
                with load.running():
                    load.go_on(50)
                    time.sleep(seconds)
            with load.running():
                time.sleep(min(seconds, 15))
        if side == TWINLOG:
            until(lambda: group.replication("master").get("role") == "SLAVE", "the old master is a replica", 60)
        verdict = group.judge(load, "replica")
    assert not verdict.broken, f"{load.history}: {verdict}"
    return f"{verdict}; sends {verdict.recovery_s[0]:.1f} s after the cut"


def slow_link(
    home: Path, seed: int, side: str = TWINLOG, seconds: float = 30, rate: str = "1mbit", large_bytes: int = 0
) -> str:
    """The replica of an ASYNC master has a link of 1 Mbit/s: the master is not slowed, the replica stays connected.

    With `large_bytes` one message takes longer than the time after which a silent peer is disconnected (20 s). The
    replica gets everything in the end. It has not been seen to fail yet.
    """
    with Network.of(*NAMES) as network, Group(home, side, network.places()).running() as group:
        group.start_pair("ASYNC_MASTER", mappedFileSizeCommitLog=str(8 << 20))
        load = Load(group.names.address, seed, body_bytes_max=4000, pause_s=0.02)
        with load.running():
            time.sleep(min(seconds, 10))
        calm = len(load.history.sends) / min(seconds, 10)
        group.logs_equal(60)
        network.limit("replica", rate)
        connected = _connections(group)
        with load.running():
            if large_bytes:
                _send_large(group, seed, large_bytes)
            time.sleep(seconds)
        slow = (len(load.history.sends) - calm * min(seconds, 10)) / seconds
        behind = log_end(group.master.store) - log_end(group.replica.store)
        group.logs_equal(300)
        verdict = group.judge(load)
        same = connected == _connections(group)
    assert not verdict.broken and not verdict.unknown, f"{load.history}: {verdict}"
    assert side != TWINLOG or same, "the replica was disconnected on a slow link"
    assert slow > calm / 2, f"{slow:.0f} sends per second with a slow replica, {calm:.0f} without"
    return f"{calm:.0f} sends per second before, {slow:.0f} with the slow link; {behind} bytes behind, then equal"


def large_messages(home: Path, seed: int, side: str = TWINLOG, rounds: int = 20, size: int = 4 << 20) -> str:
    """Messages of 4 MiB through a SYNC master: each is acknowledged, none of them times out.

    Seen to fail with slaveTimeout=1.
    """
    with Group(home, side, conf={"mappedFileSizeCommitLog": str(8 << 20)}).running() as group:
        group.start_pair("SYNC_MASTER")
        load = Load(group.names.address, seed, producers=1, timeout_ms=20_000)
        load.body_bytes_min, load.body_bytes_max = size - 4096, size - 100
        with load.running():
            load.go_on(rounds, 300)
        group.logs_equal(120)
        verdict = group.judge(load)
    assert not verdict.broken and not verdict.unknown and not verdict.refused, f"{load.last_reasons()}: {verdict}"
    slowest = max(send.ended - send.began for send in load.history.sends)
    return f"{verdict}; the slowest took {slowest * 1000:.0f} ms"


def _connections(group: Group) -> list[str]:
    return sorted(str(one.get("peer")) for one in group.replication("master").get("replicas", []))


def _send_large(group: Group, seed: int, size: int) -> None:
    load = Load(group.names.address, seed, producers=1, topic="Large", direct=group.master.address, timeout_ms=20_000)
    load.body_bytes_min, load.body_bytes_max = size - 4096, size - 100
    with load.running():
        load.go_on(1)
