"""Garbage on every port, while a healthy client sends."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.group import TWINLOG, Group
from tests.faults.history import Outcome, Send
from tests.faults.load import Load

ROOT = Path(__file__).parent.parent.parent.parent
GROWTH_MIB_MAX = 50


def garbage(
    home: Path,
    seed: int,
    side: str = TWINLOG,
    streams: int = 100_000,
    frames: int = 1_000_000,
    rate: float = 2000,
    greedy_s: float = 30,
    sends: int = 1000,
    p99_times: float | None = None,
) -> str:
    """Garbage streams on the HA port, mutated frames on the remoting, VIP and name server ports of a SYNC pair.

    The servers live, log no traceback, grow by less than 50 MiB, and a healthy client's sends go on, with a p99 below
    `p99_times` the calm one if that is given. In the end the real replica is stopped: garbage, and a false replica that
    reports all it is sent, must not acknowledge anything in its place.
    Seen to fail with a master that counts every connection without an identity; and by its p99, under the greedy
    attack, with TURN_S_MAX of `net/turns.py` at 2 ms.
    """
    with Group(home, side, conf={"brokerName": "broker-faults"}).running() as group, contextlib.ExitStack() as apart:
        group.start_pair("SYNC_MASTER", slaveTimeout="3000")
        load = Load(group.names.address, seed, producers=1, pause_s=0.01)
        if p99_times is not None:
            apart.enter_context(as_on_machines_of_their_own(group.master.pid, [group.replica.pid, group.names.pid]))
        with load.running():
            load.go_on(sends)  # to warm up
            first = len(load.history.sends)
            load.go_on(sends)
        calm = latencies(load.history.sends[first:])
        before = {"master": memory_mib(group.master.pid), "names": memory_mib(group.names.pid)}
        ports = [group.master.port, group.master.port - 2, group.names.port]
        attacks = [(group.master.port + 1, "ha", streams)] + [(port, "frames", frames // len(ports)) for port in ports]
        attacks.append((group.master.port, "greedy", int(greedy_s)))
        under: dict[str, float] = {}
        for number, (port, kind, count) in enumerate(attacks):
            first = len(load.history.sends)
            with load.running():
                played = attack(f"127.0.0.1:{port}", kind, count, seed + number, rate)
                under[kind] = max(under.get(kind, 0), latencies(load.history.sends[first:]))
                load.go_on(10)
        after = {"master": memory_mib(group.master.pid), "names": memory_mib(group.names.pid)}
        false = _false_acknowledgements(group, load, seed, max(200, streams // 100), rate)
        group.logs_equal(60)
        verdict = group.judge(load)
        noise = [one.home.name for one in (group.master, group.names) if "Traceback" in one.output.read_text()]
    growth = {name: after[name] - before[name] for name in after}
    grown = ", ".join(f"{name} {mib:+.0f} MiB" for name, mib in growth.items())
    p99 = ", ".join(f"{ms:.1f} ms under {kind}" for kind, ms in under.items())
    seen = f"{streams} streams, {frames} frames (greedy: {played}); {grown}; p99 {calm:.1f} ms calm, {p99}"
    assert not noise or side != TWINLOG, f"a traceback in the log of {noise}; {seen}"
    assert not verdict.broken, f"{load.history}: {verdict}; {seen}"
    assert not false, f"{len(false)} sends were acknowledged by garbage on the HA port; {seen}"
    assert max(growth.values()) < GROWTH_MIB_MAX, f"memory grew by {growth} MiB; {seen}"
    assert p99_times is None or max(under.values()) < p99_times * calm, f"the p99 is above its goal; {seen}"
    return seen


def _false_acknowledgements(group: Group, load: Load, seed: int, streams: int, rate: float) -> list[Send]:
    """Sends that were acknowledged while the only replica was stopped and garbage came to the HA port."""
    marks = len(load.history.sends)
    group.replica.pause()
    time.sleep(0.5)
    paused = time.monotonic()
    with load.running():
        attack(f"127.0.0.1:{group.master.port + 1}", "ha", streams, seed, rate)
        attack(f"127.0.0.1:{group.master.port + 1}", "mirror", 3, seed, rate)
        resuming = time.monotonic()
        group.replica.resume()
        load.go_on(10)
    return [
        send
        for send in load.history.sends[marks:]
        if send.outcome is Outcome.ACKNOWLEDGED and send.began > paused and send.ended < resuming
    ]


@contextlib.contextmanager
def as_on_machines_of_their_own(master: int, others: list[int]) -> Iterator[None]:
    """Put the master on one core; `others` and this process get the rest, where no attacker makes them wait.

    Otherwise the scheduler may wake a client on the core of a busy server, beside an idle core, or behind an attacker,
    even one of the lowest priority: it then waits for up to 4 ms, the time from tick to tick.
    """
    cores = os.sched_getaffinity(0)
    own = {min(cores)}
    put_on(master, own, os.SCHED_OTHER)
    for pid in (*others, os.getpid()):
        put_on(pid, cores - own or own, os.SCHED_RR)
    try:
        yield
    finally:
        put_on(os.getpid(), cores, os.SCHED_OTHER)


def put_on(pid: int, cores: set[int], policy: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or we are not root
            os.sched_setaffinity(int(thread.name), cores)
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(int(policy != os.SCHED_OTHER)))


def attack(address: str, kind: str, count: int, seed: int, rate: float) -> str:
    words = ["-m", "tests.faults.attack", address, kind, str(count), str(seed), str(rate)]
    command = ["chrt", "--other", "0", sys.executable, *words]  # not as urgent as the client may be
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def latencies(sends: list[Send]) -> float:
    """p99 of the acknowledged sends in milliseconds."""
    times = [(send.ended - send.began) * 1000 for send in sends if send.outcome is Outcome.ACKNOWLEDGED]
    return statistics.quantiles(times, n=100)[98]


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024
