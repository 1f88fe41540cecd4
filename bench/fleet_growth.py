"""How a tick of `twinlog pipeline sync` grows with the fleet: real brokers, each with new messages before every tick.

    python -m bench.fleet_growth                     50, 100, 200 and 500 brokers
    python -m bench.fleet_growth --sizes 10 --rounds 2

All brokers run on this machine, many to a process. Each size is a run of its own, with a Spark session of its own, so
that its memory is that of this size. The first tick copies everything that is there; the ticks after it copy 20
messages of 1 KiB and a consumer offset of each broker, write history and status, and are what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.twinlog_servers import Twinlog

from bench.fleet import fleet, send_more
from bench.rows import console
from bench.servers import cpu_seconds, rss_mb

SIZES = (50, 100, 200, 500)
COLUMNS = ("brokers", "first tick", "tick", "idle tick", "driver, Python", "driver, JVM", "workers", "copied per tick")


def measure(to: Path, names: str, count: int, rounds: int) -> dict[str, float]:
    """The ticks of one run, in this process; the fleet is another one's, which is asked for messages."""
    from twinlog.spark.cluster_options import ClusterOptions
    from twinlog.spark.jobs.progress import quiet
    from twinlog.spark.jobs.sync.sync_plan import SyncJob
    from twinlog.spark.jobs.sync.sync_run import SyncRun
    from twinlog.spark.session import start
    from twinlog.spark.start_noise import without_start_noise

    with without_start_noise():
        spark = start("bench", master="local[2]", conf={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})
    brokers = tuple(f"broker-{number:03d}" for number in range(count))
    job = SyncJob(to=str(to), cluster=ClusterOptions(name_servers=(names,)), brokers=brokers)
    run = SyncRun(job, os.cpu_count() or 1, quiet)
    run.discover()

    def tick(*, more: bool) -> float:
        if more:
            print("more", flush=True)
            sys.stdin.readline()
        began = time.perf_counter()
        run.tick(spark.range(1), 0)
        seconds = time.perf_counter() - began
        failed = [f"{one.broker}: {one.error}" for one in run.summary().failed]
        if failed:
            raise RuntimeError(f"{len(failed)} of {count} brokers failed: {failed[:3]}")
        return seconds

    first = tick(more=False)
    tick(more=True)
    before = run.summary().bytes_copied
    busy = [tick(more=True) for _ in range(rounds)]
    copied = (run.summary().bytes_copied - before) / rounds
    idle = [tick(more=False) for _ in range(rounds)]
    memory = _memory_mb()
    found = {"first": first, "tick": statistics.median(busy), "idle": statistics.median(idle), "copied": copied}
    return {**found, **memory}


def _memory_mb() -> dict[str, float]:
    """Memory of this process, of its JVM, and of all other processes below them."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(stat.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(stat.parent.name))
    found, left = {"python": rss_mb(os.getpid()), "jvm": 0.0, "workers": 0.0}, children[os.getpid()]
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):
            name = "jvm" if Path(f"/proc/{pid}/exe").readlink().name == "java" else "workers"
            found[name] += rss_mb(pid)
        left += children.get(pid, [])
    return found


def run_size(folder: Path, names: str, count: int, rounds: int, processes: list[subprocess.Popen[str]]) -> dict:
    """Measure one size in a process of its own, and give its brokers messages when it asks for them."""
    to = folder / f"copies-{count}"
    words = [sys.executable, "-m", "bench.fleet_growth", "--one", str(count), str(to), names, "--rounds", str(rounds)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        for line in child.stdout:
            if line.strip() == "more":
                send_more(processes)
                child.stdin.write("\n")
                child.stdin.flush()
            elif line.startswith("{"):
                shutil.rmtree(to)
                return json.loads(line)
    raise RuntimeError(f"the run with {count} brokers ended with status {child.returncode}")


def name_server_text(pid: int, names: str, brokers: int, seconds: float = 3.0) -> str:
    """What one name server does for this fleet: routes per second over one connection, CPU of each, memory."""
    from twinlog.spark.cluster_options import ClusterOptions
    from twinlog.spark.remoting import connection_to
    from twinlog.wire.codes import RequestCode
    from twinlog.wire.command import Command

    connection = connection_to(names, ClusterOptions(name_servers=(names,)))
    routes = [Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "broker-000"}) for _ in range(64)]
    count, began, cpu = 0, time.perf_counter(), cpu_seconds(pid)
    while time.perf_counter() - began < seconds:
        count += len(connection.ask(routes))
    rate, used = count / (time.perf_counter() - began), (cpu_seconds(pid) - cpu) / count
    began = time.perf_counter()
    (answer,) = connection.ask([Command(RequestCode.GET_BROKER_CLUSTER_INFO)])
    took = time.perf_counter() - began
    return (
        f"name server with {brokers} brokers: {rate:,.0f} routes/s, {used * 1e6:.0f} us of CPU each, "
        f"{rss_mb(pid):.0f} MB; cluster information of {len(answer.body) / 1000:.0f} KB in {took * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("COUNT", "TO", "NAMES"))
    given = parser.parse_args()
    if given.one is not None:
        count, to, names = given.one
        print(json.dumps(measure(Path(to), names, int(count), given.rounds)), flush=True)
        return
    console.print("| " + " | ".join(COLUMNS) + " |")
    console.print("|" + "---:|" * len(COLUMNS))
    with tempfile.TemporaryDirectory(prefix="twinlog-fleet-") as home:
        folder = Path(home)
        with (
            Twinlog().name_server(folder / "names") as names,
            fleet(folder / "fleet", names.address, max(given.sizes)) as processes,
        ):
            for count in given.sizes:
                found = run_size(folder, names.address, count, given.rounds, processes)
                times = (f"{found[name]:.2f} s" for name in ("first", "tick", "idle"))
                sizes = (f"{found[name]:.0f} MB" for name in ("python", "jvm", "workers"))
                cells = (str(count), *times, *sizes, f"{found['copied'] / 1e6:.1f} MB")
                console.print("| " + " | ".join(cells) + " |")
            console.print(name_server_text(names.pid, names.address, max(given.sizes)))


if __name__ == "__main__":
    main()
