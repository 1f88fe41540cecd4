"""Replication side by side with a Java pair: catch-up, the cost of SYNC, lag under load."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.java_rocketmq import Broker
from tests.interop.twinlog_servers import Twinlog

from bench import catch_up
from bench.rows import Row, console
from bench.sampling import sampled
from bench.servers import in_turn, running

Load = Callable[..., dict]
BODIES = (4096, 1024)  # of the messages that a replica catches up with
JOIN_SECONDS = 8  # a Java replica looks for its master every five seconds
SYNC_PLANS = (  # load, body, how it is called, goal
    ("single", 128, "one in flight, 128 B", ">= 1.7"),
    ("pipelined", 128, "4 x 64 in flight, 128 B", ">= 1.7"),
    ("pipelined", 1024, "4 x 64 in flight, 1 KiB", ">= 1.5"),
)


def measure_catch_up(folder: Path, load: Load, *, rounds: int, megabytes: int, quick: bool = False) -> list[Row]:
    """Catch-up with memory in both states that `ballast` describes; other pairs only as after a restart.

    A quick run has one size of messages, one state, and no pairs of both kinds.
    """
    rows: list[Row] = []
    for body in BODIES[: 1 if quick else None]:
        stores = catch_up.make_stores(folder / f"stores-{body}", body, megabytes, load)
        for memory in catch_up.MEMORY[: 1 if quick else None]:
            name = f"catch-up of {megabytes} MiB, {body // 1024} KiB messages, memory {memory}"
            rows += _catch_up_rows(folder, stores, name, memory, rounds, mixes=memory == "untouched" and not quick)
        shutil.rmtree(folder / f"stores-{body}", ignore_errors=True)
    return rows


def _catch_up_rows(
    folder: Path, stores: catch_up.Stores, name: str, memory: str, rounds: int, *, mixes: bool
) -> list[Row]:
    pair = Row(name, "MB/s", ">= 3")
    raw = Row(f"{name}, beside a raw copy (in Java's column)", "MB/s", ">= 0.5")
    from_java = Row(f"{name}, Twinlog replica of a Java master", "MB/s", ">= 1")
    to_java = Row(f"{name}, Java replica of a Twinlog master", "MB/s", ">= 1")
    mixed = [from_java, to_java] if mixes else []
    for number in range(rounds):
        java, ours = (catch_up.measure(folder / side, stores, side, side, memory) for side in ("java", "twinlog"))
        pair.twinlog.append(ours)
        raw.twinlog.append(ours)
        for row in (pair, *mixed):
            row.java.append(java)
        if mixed:
            from_java.twinlog.append(catch_up.measure(folder / "mixed", stores, "java", "twinlog", memory))
            to_java.twinlog.append(catch_up.measure(folder / "mixed", stores, "twinlog", "java", memory))
        raw.java.append(catch_up.raw_copy(folder / "raw", stores, memory))
        seen = f"Twinlog {ours:,.0f}, Java {java:,.0f}, a raw copy {raw.java[-1]:,.0f} MB/s"
        console.print(f"  {name}: round {number + 1} of {rounds}: {seen}")
    return [pair, raw, *mixed]


@contextlib.contextmanager
def sync_pair(kind: str, home: Path, names: str, role: str) -> Iterator[Broker]:
    """A master and its one replica, which it may not have seen yet: see JOIN_SECONDS."""
    name = f"broker-{kind}-{role[0].lower()}"
    conf = {"brokerName": name, "inSyncReplicas": "2" if role == "SYNC_MASTER" else "1"}
    with (
        running(kind, home / "master", names, brokerRole=role, **conf) as (master, _),
        running(kind, home / "replica", names, brokerRole="SLAVE", brokerId="1", **conf),
    ):
        yield master


def measure_sync(folder: Path, load: Load, *, rounds: int, seconds: float) -> list[Row]:
    rows = [Row(f"SYNC_MASTER with one replica, {text}", "messages/s", goal) for *_, text, goal in SYNC_PLANS]
    safety = [
        Row(f"our SYNC against our ASYNC (in Java's column), {text}", "messages/s", "") for *_, text, _ in SYNC_PLANS
    ]
    with Twinlog().name_server(folder / "names") as names, contextlib.ExitStack() as stack:
        masters = {
            side: stack.enter_context(sync_pair(side, folder / side, names.address, "SYNC_MASTER"))
            for side in ("java", "twinlog")
        }
        ours_async = stack.enter_context(sync_pair("twinlog", folder / "async", names.address, "ASYNC_MASTER"))
        time.sleep(JOIN_SECONDS)
        for number in range(-1, rounds):  # the first round warms up
            for row, beside, (kind, body, _, _) in zip(rows, safety, SYNC_PLANS, strict=True):
                words = (kind, "Sync", "--body", body, "--seconds", seconds)
                found = {side: _sync_rate(load, masters[side], *words) for side in in_turn(number)}
                found["async"] = _sync_rate(load, ours_async, *words)
                if number >= 0:
                    row.twinlog.append(found["twinlog"])
                    row.java.append(found["java"])
                    beside.twinlog.append(found["twinlog"])
                    beside.java.append(found["async"])
            console.print(f"  sync: round {number + 1} of {rounds}")
    return [*rows, *safety]


def _sync_rate(load: Load, master: Broker, kind: str, *words: object) -> float:
    return load(kind, master.address, *words)["per_second"]


def measure_lag(folder: Path, load: Load, *, seconds: float) -> list[Row]:
    """Lag of our replica in bytes while the master takes all it can; the row shows its first and second half."""
    with (
        Twinlog().name_server(folder / "names") as names,
        running("twinlog", folder / "master", names.address) as (master, _),
        running("twinlog", folder / "replica", names.address, brokerRole="SLAVE", brokerId="1") as (replica, _),
    ):
        time.sleep(2)
        ends = [catch_up.LogEnd(broker.address) for broker in (master, replica)]
        with sampled(lambda: ends[0].read() - ends[1].read(), 0.5) as lags:
            load("pipelined", master.address, "Lag", "--body", 1024, "--seconds", seconds)
    half = len(lags) // 2
    console.print("  lag in KiB, every half second: " + " ".join(f"{max(0, lag) >> 10}" for lag in lags))
    row = Row("lag under full load: second half (Java's column: first half)", "KiB", "flat", higher_is_better=False)
    row.twinlog, row.java = [[max(0, lag) / 1024 for lag in part] for part in (lags[half:], lags[:half])]
    return [row]
