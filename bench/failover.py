"""What automatic failover costs: the same SYNC pair with etcd and without, in alternating rounds.

A new page of memory may cost as much as seven messages (`ballast`), and which pair finds memory that was used a moment
ago depends on who ran before. So each run gets touched memory, faster than both of its logs can fill it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.failover_group import FailoverGroup
from tests.faults.group import Group
from tests.interop.java_rocketmq import Broker

from bench.ballast import Ballast
from bench.replication import SYNC_PLANS
from bench.rows import Row, console
from bench.sampling import sampled
from bench.sends import keep
from bench.servers import DEFAULTS, cpu_seconds

Load = Callable[..., dict]
GOAL = ">= 0.97"  # it may cost 3 %
_MEMORY_PER_SECOND = 1 << 29  # two logs of 100,000 messages of 1 KiB with their queues and index take half of that
CONF = {**DEFAULTS, "inSyncReplicas": "2", "slaveTimeout": "2500"}


def measure_failover(folder: Path, load: Load, *, rounds: int, seconds: float) -> list[Row]:
    """Both pairs wait for their replica: one for inSyncReplicas, the other for the in-sync set in etcd."""
    rows = [(_row(text, "messages/s"), _row(f"CPU of the master, {text}", "us")) for *_, text, _ in SYNC_PLANS]
    with _masters(folder) as masters:
        for number in range(-1, rounds):  # the first round warms up
            for pair, (kind, body, _, _) in zip(rows, SYNC_PLANS, strict=True):
                for way in ("etcd", "plain") if number % 2 else ("plain", "etcd"):
                    before = cpu_seconds(masters[way].pid)
                    with _touched_memory(seconds):
                        found = load(kind, masters[way].address, "Failover", "--body", body, "--seconds", seconds)
                    cpu_us = (cpu_seconds(masters[way].pid) - before) / found["count"] * 1e6
                    if number >= 0:
                        keep(pair, "twinlog" if way == "etcd" else "java", found["per_second"], cpu_us)
            console.print(f"  failover: round {number + 1} of {rounds}")
    return [row for pair in rows for row in pair]


@contextlib.contextmanager
def _touched_memory(seconds: float) -> Iterator[None]:
    """Memory is at hand while the block runs."""
    with Ballast.touched(int((seconds + 1) * _MEMORY_PER_SECOND)) as ballast:
        begun = time.monotonic()
        with sampled(lambda: ballast.release(int((time.monotonic() - begun) * _MEMORY_PER_SECOND)), 0.1):
            yield


def _row(text: str, unit: str) -> Row:
    name = f"SYNC pair with failoverEtcd, the same without in Java's column, {text}"
    return Row(name, unit, GOAL, higher_is_better=unit != "us")


@contextlib.contextmanager
def _masters(folder: Path) -> Iterator[dict[str, Broker]]:
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(FailoverGroup.running(folder / "etcd", ("one", "two"), **CONF))
        except pytest.skip.Exception as reason:  # not an Exception: it would end the whole bench
            raise RuntimeError(str(reason)) from None
        plain = stack.enter_context(Group(folder / "plain", conf=CONF).running())
        plain.start_pair("SYNC_MASTER")
        group.in_sync(2)
        yield {"etcd": group.group.brokers[group.leader()], "plain": plain.master}
