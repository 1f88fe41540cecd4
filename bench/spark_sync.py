"""`twinlog pipeline sync`: how fast log bytes travel beside a plain file copy, and a tick over many idle brokers.

Both are measured in a real Spark session. The copy runs from the first question to the master until everything is
durable and noted; a plain copy of the same files, made durable too, runs beside it in alternation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.twinlog_servers import Twinlog

from bench.fleet import fleet
from bench.rows import Row, console
from bench.servers import cpu_seconds, running
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.progress import quiet
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.sync_run import SyncRun
from twinlog.spark.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT = 256 << 20
BLOCK = 1 << 20
TICK_SECONDS_MAX = 2.0


def measure_sync_copy(folder: Path, *, rounds: int = 3, megabytes: int = 2048, body: int = 4096) -> list[Row]:
    """MB/s of a synchronisation from nothing, from the HA port and from the store directory, beside a plain copy."""
    spark = _session()
    by_ha = Row(f"sync of {megabytes} MiB of log from the HA port (Java's column: plain copy)", "MB/s", ">= 0.5")
    by_store = Row(f"sync of {megabytes} MiB of log from the store (Java's column: plain copy)", "MB/s", ">= 0.5")
    with (
        Twinlog().name_server(folder / "names") as names,
        running("twinlog", folder / "master", names.address, mappedFileSizeCommitLog=str(SEGMENT)) as (broker, _),
    ):
        _fill(broker.address, body, megabytes)
        store = folder / "master" / "store"
        cluster = ClusterOptions(name_servers=(names.address,))
        for number in range(-1, rounds):  # the first round warms Spark's workers up
            figures = {
                "copy": _rate(lambda: _plain_copy(store / "commitlog", folder / "plain"), folder / "plain"),
                "ha": _rate(lambda: _sync(spark, cluster, folder / "to", {}), folder / "to"),
                "store": _rate(lambda: _sync(spark, cluster, folder / "to", {"broker-a": str(store)}), folder / "to"),
            }
            if number >= 0:
                for row, kind in ((by_ha, "ha"), (by_store, "store")):
                    row.twinlog.append(figures[kind])
                    row.java.append(figures["copy"])
            console.print(f"  sync: round {number + 1} of {rounds}: " + _text(figures))
    return [by_ha, by_store]


def measure_fleet_tick(folder: Path, *, rounds: int = 5, brokers: int = 500) -> list[Row]:
    """Seconds of one tick, Spark's part included, over idle brokers that were synchronised before."""
    spark = _session()
    row = Row(f"tick over {brokers} idle brokers", "s", f"<= {TICK_SECONDS_MAX:g} s", higher_is_better=False)
    cpu = Row(f"tick over {brokers} idle brokers: CPU of Spark and the job", "s", "", higher_is_better=False)
    with (
        Twinlog().name_server(folder / "names") as names,
        fleet(folder / "fleet", names.address, brokers) as processes,
    ):
        job = SyncJob(to=str(folder / "to"), cluster=ClusterOptions(name_servers=(names.address,)))
        run = SyncRun(job, os.cpu_count() or 1, quiet)
        run.discover()
        # The first tick copies everything, the second forgets the journals; one that a busy machine spoils is repeated.
        for number in range(2 + 3 * rounds):
            before, began = _own_cpu(processes), time.perf_counter()
            run.tick(spark.range(1), number)
            seconds, used = time.perf_counter() - began, _own_cpu(processes) - before
            summary = run.summary()
            failed = [one.error for one in summary.failed]
            console.print(f"  fleet: tick {number + 1} took {seconds:.2f} s, {used:.2f} s of CPU, {len(failed)} failed")
            if number >= 2 and not failed and len(summary.brokers) == brokers:
                row.twinlog.append(seconds)
                cpu.twinlog.append(used)
            if len(row.twinlog) == rounds:
                break
        else:
            raise RuntimeError(f"{len(summary.brokers)} brokers in the last tick, failed: {failed[:3]}")
    return [row, cpu]


def _session() -> SparkSession:
    return start("bench", master="local[2]", conf={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})


def _sync(spark: SparkSession, cluster: ClusterOptions, to: Path, stores: dict[str, str]) -> int:
    """A tick that copies everything, without the start of the query around it."""
    run = SyncRun(SyncJob(to=str(to), cluster=cluster, stores=stores, once=True), os.cpu_count() or 1, quiet)
    run.discover()
    run.tick(spark.range(1), 0)
    summary = run.summary()
    if summary.failed:
        raise RuntimeError(summary.failed[0].error)
    return summary.bytes_copied


def _plain_copy(source: Path, target: Path) -> int:
    """Copy the files of a log block by block, then make them durable."""
    target.mkdir(parents=True)
    copied, block = 0, memoryview(bytearray(BLOCK))
    for path in sorted(source.iterdir()):
        with path.open("rb", buffering=0) as reader, (target / path.name).open("wb", buffering=0) as writer:
            while count := reader.readinto(block):
                writer.write(block[:count])
                copied += count
            os.fdatasync(writer.fileno())
    return copied


def _rate(work: Callable[[], int], leaves: Path) -> float:
    """MB/s; what the work leaves behind is removed, and all disks are quiet before and after."""
    shutil.rmtree(leaves, ignore_errors=True)
    os.sync()
    began = time.perf_counter()
    count = work()
    rate = count / (time.perf_counter() - began) / 1e6
    shutil.rmtree(leaves, ignore_errors=True)
    return rate


def _fill(address: str, body: int, megabytes: int) -> None:
    messages = (megabytes << 20) // (body + 250)
    words = ["fill", address, "Sync", "--body", str(body), "--messages", str(messages)]
    subprocess.run([sys.executable, "-m", "bench.load", *words], check=True, timeout=600, stdout=subprocess.DEVNULL)


def _own_cpu(others: list[subprocess.Popen[str]]) -> float:
    """CPU seconds of this process and all it has started, the brokers apart."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    total, left, brokers = 0.0, [os.getpid()], {one.pid for one in others}
    while left:
        pid = left.pop()
        if pid not in brokers:
            with contextlib.suppress(OSError):
                total += cpu_seconds(pid)
            left += children.get(pid, [])
    return total


def _text(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:.0f} MB/s" for name, rate in figures.items())
