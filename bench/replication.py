"""Replication side by side with a Java pair: catch-up, the cost of SYNC, lag under load, metadata ticks."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.java_rocketmq import Broker
from tests.interop.twinlog_servers import Twinlog

from bench import catch_up
from bench.rows import Row, console
from bench.servers import running
from twinlog.metadata.tables import open_tables
from twinlog.metadata.topics import TopicTable
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.replication.metadata_delta import encode_changes
from twinlog.replication.metadata_sync_service import MetadataSyncService
from twinlog.settings.replication import ReplicationSettings
from twinlog.wire.bodies import TopicConfig
from twinlog.wire.command import Command, encode_command
from twinlog.wire.twinlog_codes import TwinlogCode

Load = Callable[..., dict]


def measure_catch_up(folder: Path, load: Load, *, rounds: int, megabytes: int) -> list[Row]:
    rows = []
    for body in (4096, 1024):
        name = f"catch-up of {megabytes} MiB, {body // 1024} KiB messages"
        pair = Row(name, "MB/s", ">= 3")
        from_java = Row(f"{name}, Twinlog replica of a Java master", "MB/s", ">= 1")
        to_java = Row(f"{name}, Java replica of a Twinlog master", "MB/s", ">= 1")
        raw = Row(f"{name}, beside a raw copy (in Java's column)", "MB/s", ">= 0.5")
        stores = catch_up.make_stores(folder / f"stores-{body}", body, megabytes, load)
        for number in range(rounds):
            for row, master, replica in (
                (pair, "java", "java"),
                (pair, "twinlog", "twinlog"),
                (from_java, "java", "twinlog"),
                (to_java, "twinlog", "java"),
            ):
                rate = catch_up.measure(folder / f"{master}-{replica}", stores, master, replica)
                if master == replica == "java":
                    for each in (pair, from_java, to_java):
                        each.java.append(rate)
                else:
                    row.twinlog.append(rate)
                    if row is pair:
                        raw.twinlog.append(rate)
            raw.java.append(catch_up.raw_copy(folder / "raw", stores))
            console.print(f"  catch-up, {body} B: round {number + 1} of {rounds}")
        shutil.rmtree(folder / f"stores-{body}", ignore_errors=True)
        rows += [pair, from_java, to_java, raw]
    return rows


@contextlib.contextmanager
def sync_pair(kind: str, home: Path, names: str, role: str) -> Iterator[Broker]:
    """A master that waits for its one replica; returns once the replica is counted."""
    name = f"broker-{kind}-{role[0].lower()}"
    conf = {"brokerName": name, "inSyncReplicas": "2" if role == "SYNC_MASTER" else "1"}
    with (
        running(kind, home / "master", names, brokerRole=role, **conf) as (master, _),
        running(kind, home / "replica", names, brokerRole="SLAVE", brokerId="1", **conf),
    ):
        time.sleep(8)  # a Java replica looks for its master every five seconds
        yield master


def measure_sync(folder: Path, load: Load, *, rounds: int, seconds: float) -> list[Row]:
    plans = (("single", "one in flight"), ("pipelined", "4 x 64 in flight"))
    rows = {kind: Row(f"SYNC_MASTER with one replica, {text}, 128 B", "messages/s", ">= 1.5") for kind, text in plans}
    safety = {
        kind: Row(f"our SYNC against our ASYNC (in Java's column), {text}", "messages/s", "") for kind, text in plans
    }
    with Twinlog().name_server(folder / "names") as names, contextlib.ExitStack() as stack:
        masters = {
            side: stack.enter_context(sync_pair(side, folder / side, names.address, "SYNC_MASTER"))
            for side in ("java", "twinlog")
        }
        ours_async = stack.enter_context(sync_pair("twinlog", folder / "async", names.address, "ASYNC_MASTER"))
        for number in range(-1, rounds):  # the first round warms up
            for kind, _ in plans:
                for side in ("java", "twinlog") if number % 2 else ("twinlog", "java"):
                    result = load(kind, masters[side].address, "Sync", "--body", 128, "--seconds", seconds)
                    if number >= 0:
                        getattr(rows[kind], side).append(result["per_second"])
                result = load(kind, ours_async.address, "Sync", "--body", 128, "--seconds", seconds)
                if number >= 0:
                    safety[kind].twinlog.append(rows[kind].twinlog[-1])
                    safety[kind].java.append(result["per_second"])
            console.print(f"  sync: round {number + 1} of {rounds}")
    return [*rows.values(), *safety.values()]


def measure_lag(folder: Path, load: Load, *, seconds: float) -> list[Row]:
    """Lag of our replica in bytes while the master takes all it can; the row shows its first and second half."""
    with (
        Twinlog().name_server(folder / "names") as names,
        running("twinlog", folder / "master", names.address) as (master, _),
        running("twinlog", folder / "replica", names.address, brokerRole="SLAVE", brokerId="1") as (replica, _),
    ):
        time.sleep(2)
        ends = [catch_up.LogEnd(broker.address) for broker in (master, replica)]
        with catch_up.sampled(lambda: ends[0].read() - ends[1].read(), 0.5) as lags:
            load("pipelined", master.address, "Lag", "--body", 1024, "--seconds", seconds)
    half = len(lags) // 2
    console.print("  lag in KiB, every half second: " + " ".join(f"{max(0, lag) >> 10}" for lag in lags))
    row = Row("lag under full load: second half (Java's column: first half)", "KiB", "flat", higher_is_better=False)
    row.twinlog, row.java = [[max(0, lag) / 1024 for lag in part] for part in (lags[half:], lags[:half])]
    return [row]


def measure_metadata(folder: Path, *, rounds: int) -> list[Row]:
    """One tick between Twinlog peers, idle and with one changed topic, as the tables grow."""
    rows = []
    for topics in (1_000, 10_000, 100_000):
        idle, changed = asyncio.run(_ticks(folder / str(topics), topics, rounds))
        for name, figures in (("an idle tick", idle), ("a tick with one changed topic", changed)):
            cpu = Row(f"metadata, {topics:,} topics: CPU of {name}", "us", "same +- 20 %", higher_is_better=False)
            size = Row(f"metadata, {topics:,} topics: bytes of {name}", "bytes", "same", higher_is_better=False)
            cpu.twinlog, size.twinlog = [cpu_us for cpu_us, _ in figures], [count for _, count in figures]
            rows += [cpu, size]
        whole = sum(map(len, table_of(topics).encode_file()))
        name = f"metadata, {topics:,} topics: bytes of the topic table, which a Java replica gets at every tick"
        rows.append(Row(name, "bytes", "", higher_is_better=False, java=[whole]))
    return rows


def table_of(topics: int) -> TopicTable:
    table = TopicTable()
    table.put_all({f"T{n}": TopicConfig(topic_name=f"T{n}") for n in range(topics)}, 3)
    return table


async def _ticks(home: Path, topics: int, rounds: int) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    master, replica = open_tables(None, 1), open_tables(home, 2)
    master.topics.put_all(table_of(topics).rows, 3)
    moved = 0

    def answer(request):
        nonlocal moved
        answered = request.reply(body=encode_changes(master, dict(request.fields or {})))
        asked = Command(request.code, request.opaque, fields=request.fields, body=request.body)
        moved += len(encode_command(asked)) + len(encode_command(answered))
        return answered

    server, pool = Server({TwinlogCode.METADATA_CHANGES: answer}), ConnectionPool()
    await server.start("127.0.0.1", 0)
    settings = ReplicationSettings()
    sync = MetadataSyncService(
        lambda: settings, replica, pool, own_address="127.0.0.1:1", clock_ms=lambda: time.time_ns() // 1_000_000
    )
    sync.master_is_at(f"127.0.0.1:{server.port}")
    await sync.sync()
    assert replica.topics.rows == master.topics.rows
    written = {path: path.stat().st_mtime_ns for path in home.glob("*")}
    idle, changed = [], []
    for _ in range(rounds):
        moved, before = 0, time.process_time()
        for _ in range(100):
            await sync.sync()
        idle.append(((time.process_time() - before) / 100 * 1e6, moved // 100))
    assert written == {path: path.stat().st_mtime_ns for path in home.glob("*")}, "an idle tick wrote to the disk"
    for table in replica:
        table.file = None  # the cost of the change itself, without the file that is rewritten beside it
    for number in range(rounds):
        master.topics.put("T7", TopicConfig(topic_name="T7", perm=number % 2 + 4), 100 + number)
        moved, before = 0, time.process_time()
        await sync.sync()
        changed.append(((time.process_time() - before) * 1e6, moved))
    await pool.close()
    await server.stop()
    shutil.rmtree(home, ignore_errors=True)
    return idle, changed


def flatness(rows: list[Row]) -> float:
    """The largest idle tick over the smallest, for the README."""
    idle = [statistics.median(row.twinlog) for row in rows if "CPU of an idle tick" in row.name]
    return max(idle) / min(idle) if idle else 0.0
