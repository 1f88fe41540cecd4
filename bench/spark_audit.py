"""How fast an audit finds two equal stores equal: cached files, one core and then all of them.

Each figure comes from a process of its own with a Spark session of its own, as a session keeps its number of cores.
The figures are those of whole audits as a user runs them, looks and summary included, in a session that is warm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.rows import Row, console

ROOT = Path(__file__).parent.parent
SEGMENT = 256 << 20
BODY_BYTES = 1024


def measure_audit(folder: Path, *, gigabytes: float = 2.0, rounds: int = 3) -> list[Row]:
    """Rows of GB/s per core, and the CPU that a gigabyte costs; Java's column is one core's plain comparison."""
    master, replica = make_twins(folder, gigabytes)
    cores = os.cpu_count() or 1
    goal = ">= 1 GB/s"
    rows = []
    for count in dict.fromkeys((1, cores)):
        figures = _in_process(master, replica, count, rounds)
        name = f"audit of two equal {gigabytes:g} GiB stores, {count} core{'s' if count > 1 else ''}"
        rate = Row(f"{name}, per core (Java's column: numpy alone)", "GB/s", goal)
        rate.twinlog = [one["gb_per_second"] / count for one in figures]
        rate.java = [one["plain_gb_per_second"] for one in figures]
        cpu = Row(f"{name}: CPU of workers per GB", "s", "<= 1", higher_is_better=False)
        cpu.twinlog = [one["worker_cpu_seconds"] / one["gigabytes"] for one in figures]
        rows += [rate, cpu]
        console.print(f"  audit on {count} of {cores} cores: {json.dumps(figures[-1])}")
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def make_twins(folder: Path, gigabytes: float) -> tuple[Path, Path]:
    """A store of 1 KiB messages, and its copy."""
    from twinlog.settings.store import StoreSettings
    from twinlog.store.log.append import Draft
    from twinlog.store.message_store import MessageStore

    master, replica = folder / "master" / "store", folder / "replica" / "store"
    settings = StoreSettings(root_dir=str(master), segment_bytes=SEGMENT, index_enabled=False)
    body, number = os.urandom(BODY_BYTES), 0
    with MessageStore.open(settings) as store:
        while store.log_end < gigabytes * (1 << 30):
            for _ in range(10_000):
                store.append(Draft("Audit", number % 8, body, b"UNIQ_KEY\x01%032d\x02" % number))
                number += 1
            store.dispatch_pending()
    (master / "config").mkdir(exist_ok=True)
    shutil.copytree(master, replica)
    return master, replica


def _in_process(master: Path, replica: Path, cores: int, rounds: int) -> list[dict]:
    command = [sys.executable, "-m", "bench.spark_audit", str(master), str(replica), str(cores), str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _run(master: str, replica: str, cores: int, rounds: int) -> list[dict]:
    from twinlog.spark.jobs.audit.blocks import unequal_runs
    from twinlog.spark.jobs.audit.job import AuditJob, audit
    from twinlog.spark.jobs.audit.local_log import LocalLog, list_log
    from twinlog.spark.jobs.audit.pairs import pairs_of
    from twinlog.spark.session import start

    spark = start("bench", master=f"local[{cores}]", conf={"spark.log.level": "ERROR"})
    job = AuditJob(pairs=pairs_of([master, replica]))
    figures = []
    for number in range(-1, rounds):  # the first round warms up
        cpu = _python_cpu_seconds()
        summary = audit(spark, job)
        cpu = _python_cpu_seconds() - cpu
        assert summary.status == 0, summary.findings[:3]
        began = time.perf_counter()
        with LocalLog(list_log(Path(master), (Path(master) / "commitlog",))) as one:
            other_log = list_log(Path(replica), (Path(replica) / "commitlog",))
            listed = time.perf_counter()
            with LocalLog(other_log) as other:
                assert not unequal_runs(one, other, 0, other_log.end)
        plain = time.perf_counter() - listed
        if number >= 0:
            size = summary.compared_bytes / 1e9
            figures.append(
                {
                    "gigabytes": size,
                    "gb_per_second": size / summary.seconds,
                    "seconds": summary.seconds,
                    "worker_cpu_seconds": cpu,
                    "plain_gb_per_second": size / plain,
                    "listing_seconds": listed - began,
                }
            )
    spark.stop()
    return figures


def _python_cpu_seconds() -> float:
    """CPU of all Python workers below this process, the dead ones included."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0.0
    parents: dict[int, int] = {}
    stats: dict[int, tuple[str, float]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            words = text.rpartition(")")[2].split()
            parents[int(name)] = int(words[1])
            command = text[text.index("(") + 1 : text.rindex(")")]
            stats[int(name)] = command, sum(map(int, words[11:15])) / tick
    for pid, (command, seconds) in stats.items():
        above = parents[pid]
        while above not in (0, 1, os.getpid()):
            above = parents.get(above, 0)
        if above == os.getpid() and command.startswith(("python", "pyspark")):
            total += seconds
    return total


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
