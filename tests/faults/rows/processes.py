"""A process that is killed or stopped: the replica, or the master after an operator promoted its replica."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.faults.group import JAVA, TWINLOG, Group
from tests.faults.history import Outcome, Send, read_of
from tests.faults.load import TOPIC, Load
from tests.interop.replica_pair import log_end, records, until

from twinlog.client.sync import Admin

RETURN_S_MAX = 10.0


def kill_replica(home: Path, seed: int, side: str = TWINLOG, rounds: int = 20, down_s: float = 1.0) -> str:
    """kill -9 of the replica of a SYNC master under load, round after round.

    Each acknowledged message was in the log of the dead replica, none is acknowledged while it is away, and after its
    return the logs become equal. Seen to fail with inSyncReplicas=1: sends are acknowledged while no replica runs.
    """
    dice, equal_s = random.Random(seed), []
    with Group(home, side).running() as group:
        group.start_pair("SYNC_MASTER", slaveTimeout="3000")
        load = Load(group.names.address, seed)
        for _ in range(rounds):
            with load.running():
                load.go_on(50)
                time.sleep(dice.uniform(0, 0.5))
                group.replica.kill()
                killed = time.monotonic()
                kept = {read_of(each).key for each in records(group.replica.store) if each.topic == TOPIC}
                load.history.fault(killed, "kill replica")
                time.sleep(dice.uniform(0, down_s))
                starting = time.monotonic()
                _check_replica_had_all(load, kept, killed, starting)
                group.restart("replica")
                load.go_on(1)
            began = time.monotonic()
            group.logs_equal(60)
            equal_s.append(time.monotonic() - began)
        verdict = group.judge(load)
    assert not verdict.broken, f"{load.history}: {verdict}"
    recovered = sorted(verdict.recovery_s)
    return f"{verdict}; logs equal at most {max(equal_s):.1f} s after load, sends after {recovered[-1]:.1f} s at most"


def _check_replica_had_all(load: Load, kept: set[tuple[int, int]], killed: float, starting: float) -> None:
    sends = [send for send in list(load.history.sends) if send.outcome is Outcome.ACKNOWLEDGED]
    missing = [send.key for send in sends if send.ended < killed and send.key not in kept]
    assert not missing, f"{len(missing)} acknowledged messages were not at the replica: {missing[:3]}; {load.history}"
    alone = [send.key for send in sends if send.began > killed and send.ended < starting]
    assert not alone, f"{len(alone)} sends were acknowledged while no replica ran; {load.history}"


def stop_replica(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, stopped_s: float = 25.0) -> str:
    """SIGSTOP of the replica of a SYNC master: its connection stays open, but it reports nothing.

    No send is acknowledged without it (inSyncReplicas=2), and sends go on after it resumes. Seen to fail with
    inSyncReplicas=1.
    """
    with Group(home, side).running() as group:
        group.start_pair("SYNC_MASTER", slaveTimeout="3000")
        load = Load(group.names.address, seed, timeout_ms=5000)
        for _ in range(rounds):
            with load.running():
                load.go_on(50)
                group.replica.pause()
                paused = time.monotonic() + 0.5  # the reports that were on their way have arrived
                time.sleep(stopped_s)
                resuming = time.monotonic()
                group.replica.resume()
                load.history.fault(resuming, "resume replica")
                load.go_on(50)
            false = [s.key for s in _acknowledged(load) if s.began > paused and s.ended < resuming]
            assert not false, f"{len(false)} sends were acknowledged while the replica was stopped; {load.history}"
        group.logs_equal(60)
        verdict = group.judge(load)
    assert not verdict.broken, f"{load.history}: {verdict}"
    return f"{verdict}; sends {max(verdict.recovery_s):.1f} s after it resumed"


def stop_master(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, stopped_s: float = 25.0) -> str:
    """SIGSTOP of an ASYNC master, its replica is promoted by hand, SIGCONT: the old master acknowledges nothing.

    One load follows the route, another has open connections to the old master and does not look at the route.
    Seen to fail with a guard that is always valid (`MasterGuard.is_valid` returning True).
    """
    numbers = []
    for number in range(rounds):
        numbers.append(_stop_master_once(home / f"round-{number}", seed + number, side, stopped_s))
    return "; ".join(numbers)


def _stop_master_once(home: Path, seed: int, side: str, stopped_s: float) -> str:
    with Group(home, side).running() as group:
        group.start_pair("ASYNC_MASTER")
        load = Load(group.names.address, seed)
        stubborn = Load(group.names.address, seed + 1, topic="Stubborn", direct=group.master.address)
        with stubborn.running():
            with load.running():
                load.go_on(100)
                stubborn.go_on(100)
            # What an ASYNC master alone has is not promised: the replica gets all of the load first.
            sent = log_end(group.master.store)
            until(lambda: log_end(group.replica.store) >= sent, "the replica has all of the load", 30)
            group.master.pause()
            promoted = time.monotonic()
            promote(group, "replica")
            with load.running():
                load.go_on(50)
                time.sleep(max(0.0, stopped_s - (time.monotonic() - promoted)))
                group.master.resume()
                resumed = time.monotonic()
                load.history.fault(resumed, "resume the old master")
                load.go_on(50)
                time.sleep(min(5.0, stopped_s / 2))
        false = [send for send in _acknowledged(stubborn) if send.ended > resumed]
        verdict = group.judge(load, "replica")
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert not false, f"the old master acknowledged {len(false)} sends after it was replaced; {stubborn.history}"
    return f"old master: {stubborn.history.count(Outcome.ACKNOWLEDGED)} acknowledged before, 0 after; new: {verdict}"


def promote(group: Group, name: str, role: str = "ASYNC_MASTER") -> None:
    """Make a replica master: by the command, or, as operators of Java do it, by a restart with another role."""
    if group.side == JAVA:
        group.brokers[name].kill()
        group.change_conf(name, brokerRole=role, brokerId="0")
        group.restart(name)
        return
    with Admin(group.names.address) as admin:
        admin.change_role(group.brokers[name].address, role)
    until(lambda: group.replication(name).get("role") == role, f"{name} is master", 30)


def _acknowledged(load: Load) -> list[Send]:
    return [send for send in list(load.history.sends) if send.outcome is Outcome.ACKNOWLEDGED]
