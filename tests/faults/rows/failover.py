"""Three brokers with automatic failover: a master is killed or stopped, a replica is stopped, or etcd is away."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.checker import Verdict
from tests.faults.failover_group import FailoverGroup
from tests.faults.group import TWINLOG
from tests.faults.history import Outcome, reads_of
from tests.faults.load import TOPIC, Load
from tests.interop.replica_pair import log_end, until

from twinlog.store.offline.tail_file import Damage, read_tail


def kill_master(
    home: Path, seed: int, side: str = TWINLOG, rounds: int = 20, role: str = "SYNC_MASTER", **more: str
) -> str:
    """kill -9 of the master under load; it is started again and returns as a replica by itself.

    SYNC: nothing acknowledged is lost. ASYNC: what is lost is in a tail that an old master has set aside.
    Seen to fail with an `AckRule.end` that returns the end of the log.
    """
    assert side == TWINLOG
    with FailoverGroup.running(home, failoverMasterRole=role, **more) as group:
        load = Load(group.group.names.address, seed)
        group.in_sync(3)
        with load.running():
            for _ in range(rounds):
                kill_once(group, load)
                group.in_sync(3)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
        lost = [one.lost for one in group.history() if one.lost is not None]
        aside = {key for one in group.group.brokers.values() for key in _keys_set_aside(one.store)}
    times = sorted(verdict.recovery_s)
    lost_text = ""
    if role == "ASYNC_MASTER":
        unreported = [send.key for send in verdict.lost if send.key not in aside]
        assert not unreported, f"{len(unreported)} of {len(verdict.lost)} lost sends are in no tail: {unreported[:3]}"
        lost_text = f"; {len(verdict.lost)} lost, all in the tails of old masters; the history reports {lost}"
        verdict = _without_losses(verdict)
    assert not verdict.broken, f"{load.history}: {verdict}"
    after = f"median {statistics.median(times):.1f} s, worst {times[-1]:.1f} s"
    return f"first acknowledged send after {after}; {verdict}{lost_text}"


def kill_once(group: FailoverGroup, load: Load) -> str:
    """Kill the leader under load, wait for the next one, start the killed one again; returns its name."""
    load.go_on(50)
    name, at = group.kill_leader()
    load.history.fault(at, f"kill {name}")
    load.go_on(20)
    assert group.leader(other_than=name) != name
    group.restart(name)
    return name


def kill_with_tail(group: FailoverGroup, load: Load) -> str:
    """Kill the leader after it has stored what no replica has; it returns without that. Returns its name.

    The replicas are killed before: one that is only stopped would find the bytes in its socket.
    """
    load.go_on(20)
    name = group.leader()
    others = [other for other in group.group.brokers if other != name]
    for other in others:
        group.group.brokers[other].kill()
    store = group.group.brokers[name].store
    had = log_end(store)
    until(lambda: log_end(store) > had, "the leader has more than its replicas", 30)
    group.group.brokers[name].kill()
    load.history.fault(time.monotonic(), f"kill {name}")
    for other in others:
        group.restart(other)
    load.go_on(20)
    assert group.leader(other_than=name) != name
    group.restart(name)
    return name


def stop_master(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, stopped_s: float = 25, **more: str) -> str:
    """SIGSTOP of the master for longer than the lease, SIGCONT: it acknowledges nothing, and returns as a replica."""
    assert side == TWINLOG
    verdict = _in_rounds(home, seed, rounds, lambda group, load: stop_once(group, load, stopped_s), **more)
    return f"the old master acknowledged nothing; {verdict}"


def stop_once(group: FailoverGroup, load: Load, stopped_s: float = 0) -> None:
    """Stop the leader until another one leads, at least so long; a second load does not look at the route.

    Seen to fail with `MasterGuard.is_valid` and `may_acknowledge` returning True, for an ASYNC master. A SYNC master
    has no replicas any more that could report.
    """
    name = group.leader()
    old = group.group.brokers[name]
    stubborn = Load(group.group.names.address, load.seed + 1, topic="Stubborn", direct=old.address)
    with load.running(), stubborn.running():
        load.go_on(50)
        stubborn.go_on(20)
        old.pause()
        stopped = time.monotonic()
        try:
            group.leader(other_than=name)
            load.go_on(20)
            time.sleep(max(0.0, stopped_s - (time.monotonic() - stopped)))
            resumed = time.monotonic()
        finally:
            old.resume()
        load.history.fault(resumed, f"resume {name}")
        load.go_on(20)
        group.in_sync(3)
    late = [one for one in stubborn.history.sends if one.outcome is Outcome.ACKNOWLEDGED and one.ended > resumed]
    assert not late, f"the old master acknowledged {len(late)} sends after it was replaced; {stubborn.history}"


def stop_replica(
    home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, stopped_s: float = 25, **more: str
) -> str:
    """SIGSTOP of a replica: it leaves the in-sync set, sends go on without it, and it returns after SIGCONT.

    Seen to fail with a `_must_leave` that returns False.
    """
    assert side == TWINLOG
    verdict = _in_rounds(home, seed, rounds, lambda group, load: _stop_replica_once(group, load, stopped_s), **more)
    after = ", ".join(f"{took:.1f}" for took in verdict.recovery_s)
    return f"sends went on {after} s after it was stopped; {verdict}"


def _stop_replica_once(group: FailoverGroup, load: Load, stopped_s: float) -> None:
    leader = group.leader()
    replica = next(one for name, one in group.group.brokers.items() if name != leader)
    with load.running():
        load.go_on(50)
        replica.pause()
        stopped = time.monotonic()
        load.history.fault(stopped, "stop a replica")
        try:
            group.in_sync(2)
            load.go_on(50)
            time.sleep(max(0.0, stopped_s - (time.monotonic() - stopped)))
        finally:
            replica.resume()
        group.in_sync(3)
        load.go_on(50)
    assert group.leader() == leader, "a stopped replica changed who leads"


def etcd_away(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, away_s: float = 30, **more: str) -> str:
    """etcd is killed and comes back: sends stop before the lease ends, and go on by themselves afterwards."""
    assert side == TWINLOG
    verdict = _in_rounds(home, seed, rounds, lambda group, load: etcd_away_once(group, load, away_s), **more)
    return f"no acknowledgement after the lease, and all goes on when etcd is back; {verdict}"


def etcd_away_once(group: FailoverGroup, load: Load, away_s: float = 0) -> None:
    """Seen to fail (sends go on) with a guard that does not get the end of the lease."""
    lease_s = float(group.group.conf.get("failoverLeaseSeconds", "4"))
    with load.running():
        load.go_on(50)
        group.etcd.kill()
        killed = time.monotonic()
        try:
            until(lambda: not _went_on(load, 0.5 * lease_s), "sends stop", 30)
            time.sleep(max(0.0, away_s - (time.monotonic() - killed)))
            late = [one for one in load.history.sends if one.outcome is Outcome.ACKNOWLEDGED and one.began > killed]
            assert all(one.ended < killed + lease_s for one in late), "a send was acknowledged after the lease"
        finally:
            group.restart_etcd()
        load.history.fault(time.monotonic(), "etcd is back")
        load.go_on(20)
        group.in_sync(3)


def _went_on(load: Load, seconds: float) -> bool:
    before = load.history.count(Outcome.ACKNOWLEDGED)
    time.sleep(seconds)
    return load.history.count(Outcome.ACKNOWLEDGED) > before


def _without_losses(verdict: Verdict) -> Verdict:
    """What an ASYNC master may break: the newest sends are gone, and their places are given again."""
    verdict.lost, verdict.misplaced, verdict.acknowledged_twice = [], [], []
    return verdict


def tails_set_aside(store: Path) -> list[Path]:
    return sorted(store.glob("set-aside/*/tail-*"))


def _keys_set_aside(store: Path) -> set[tuple[int, int]]:
    """The sends whose messages are in the tails that this broker has set aside."""
    found = [one for tail in tails_set_aside(store) for one in read_tail(tail) if not isinstance(one, Damage)]
    return {read.key for read in reads_of(one for one in found if one.topic == TOPIC)}


def _in_rounds(home: Path, seed: int, rounds: int, once: Callable[[FailoverGroup, Load], None], **more: str) -> Verdict:
    """Attack a group of three in every round; nothing may be broken, and the logs are equal in the end."""
    with FailoverGroup.running(home, **more) as group:
        load = Load(group.group.names.address, seed)
        group.in_sync(3)
        for _ in range(rounds):
            once(group, load)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
    assert not verdict.broken, f"{load.history}: {verdict}"
    return verdict
