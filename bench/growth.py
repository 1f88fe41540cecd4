"""What becomes dearer as there is more: topics, connections, replicas, consumers, bytes of log.

Every part measures the same load at several sizes: messages per second, CPU of the broker per message, and its memory.
The goal is the same cost at every size; `docs/benchmarks.md` gives the reason where it grows by more than 20 %.
`python -m bench.plot` draws the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_rocketmq import Broker
from tests.interop.twinlog_servers import Twinlog

from bench.growth_load import topic_name
from bench.rows import Row, console
from bench.servers import cpu_seconds, rss_mb, running

ROOT = Path(__file__).parent.parent
USED_FEW = 10
GIB = 1 << 30
LOG_BODY = 4096
RATE = 10_000  # messages per second that consumers share
# Java maps a file for every queue that is sent to, and Linux allows 65,530 maps: `vm.max_map_count`.
JAVA_QUEUES_MAX = 30_000
JAVA_WARM_UP_S = 8.0


@dataclass(frozen=True)
class Sizes:
    """How large everything becomes; `java` has the sides measured beside ours."""

    topics: Sequence[int] = (10, 1_000, 100_000)
    connections: Sequence[int] = (10, 1_000, 5_000)
    replicas: Sequence[int] = (1, 2, 4)
    log_gib: Sequence[int] = (1, 10, 30)
    consumers: Sequence[int] = (1, 4, 16, 64)
    seconds: float = 5.0
    rounds: int = 3
    sides: Sequence[str] = ("twinlog", "java")


QUICK = Sizes((10, 1_000), (10, 500), (1,), (1,), (1, 16), seconds=1.0, rounds=1, sides=("twinlog",))
_QUANTITIES = {  # key of a result: what, unit, whether more is better
    "per_second": ("rate", "messages/s", True),
    "cpu_us": ("CPU per message", "us", False),
    "cpu_us_replica": ("CPU per message of one replica", "us", False),
    "rss_mb": ("memory", "MB RSS", False),
    "kb_each": ("memory of one connection", "KB", False),
    "per_pull": ("messages per pull", "messages", True),
    "ready_s": ("ready", "s", False),
}


class Rows:
    """Rows by scene and quantity; results are added as they are measured."""

    def __init__(self) -> None:
        self.by_name: dict[str, Row] = {}

    def add(self, scene: str, side: str, result: dict) -> None:
        for key, (what, unit, more_is_better) in _QUANTITIES.items():
            if key in result:
                name = f"growth, {scene}: {what}"
                row = self.by_name.setdefault(name, Row(name, unit, "same +- 20 %", higher_is_better=more_is_better))
                getattr(row, side).append(result[key])
        shown = ", ".join(f"{_QUANTITIES[key][0]} {value:,.1f}" for key, value in result.items() if key in _QUANTITIES)
        console.print(f"  {scene}, {side}: {shown}")


def warm_up(side: str, broker: Broker, sizes: Sizes) -> None:
    """Java compiles what it runs; until then it is several times as slow."""
    load("connections", broker, "--seconds", JAVA_WARM_UP_S if side == "java" else sizes.seconds / 2)


def load(kind: str, broker: Broker, *args: object) -> dict:
    """Run the load in a process of its own."""
    command = [sys.executable, "-m", "bench.growth_load", kind, broker.address, str(broker.pid), *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}\n{broker.tail()}")
    return json.loads(done.stdout)


# ---- topics


def measure_topics(folder: Path, sizes: Sizes) -> list[Row]:
    rows = Rows()
    for side in sizes.sides:
        for topics in sizes.topics:
            home = folder / f"{side}-{topics}"
            seed_topics(home, topics)
            with names_and(side, home, folder) as (broker, seconds):
                rows.add(f"start with {topics:,} topics", side, {"ready_s": seconds, "rss_mb": rss_mb(broker.pid)})
                warm_up(side, broker, sizes)
                for used in dict.fromkeys((USED_FEW, topics)):
                    if side == "java" and used > JAVA_QUEUES_MAX:
                        continue
                    scenes = [text for text, count in (("10", USED_FEW), ("all", topics)) if count == used]
                    for _ in range(sizes.rounds):
                        result = load("topics", broker, "--used", used, "--seconds", sizes.seconds)
                        for text in scenes:
                            rows.add(f"{topics:,} topics, {text} in use", side, result)
            shutil.rmtree(home, ignore_errors=True)
    return list(rows.by_name.values())


def seed_topics(home: Path, topics: int) -> None:
    """topics.json, as both brokers write it; creating 100,000 topics by requests would take minutes."""
    table = {
        name: {
            "attributes": {}, "order": False, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG",
            "topicName": name, "topicSysFlag": 0, "writeQueueNums": 1,
        }
        for name in map(topic_name, range(topics))
    }  # fmt: skip
    document = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": table}
    config = home / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(json.dumps(document))


@contextlib.contextmanager
def names_and(side: str, home: Path, folder: Path, **conf: str) -> Iterator[tuple[Broker, float]]:
    """A name server and one broker, with the seconds that the broker took to be ready."""
    with Twinlog().name_server(folder / "names") as names, running(side, home, names.address, **conf) as started:
        yield started


# ---- connections


def measure_connections(folder: Path, sizes: Sizes) -> list[Row]:
    rows = Rows()
    for side in sizes.sides:
        with names_and(side, folder / side, folder) as (broker, _):
            warm_up(side, broker, sizes)
            for _ in range(sizes.rounds):
                for count in sizes.connections:
                    for kind, text in (("--idle", "idle connections"), ("--held", "held pulls")):
                        result = load("connections", broker, kind, count, "--seconds", sizes.seconds)
                        rows.add(f"{count:,} {text}", side, result)
                        time.sleep(0.5)  # the broker closes them
    return list(rows.by_name.values())


# ---- replicas


def measure_replicas(folder: Path, sizes: Sizes) -> list[Row]:
    """Sends to an ASYNC_MASTER and its replicas, which all share the machine's cores."""
    rows = Rows()
    for side in sizes.sides:
        for replicas in (0, *sizes.replicas):
            home = folder / f"{side}-{replicas}"
            seed_topics(home / "0", USED_FEW)
            with replicated(side, home, folder, replicas) as (master, others):
                warm_up(side, master, sizes)
                for _ in range(sizes.rounds):
                    before = sum(cpu_seconds(other.pid) for other in others)
                    result = load("topics", master, "--used", USED_FEW, "--seconds", sizes.seconds)
                    used = sum(cpu_seconds(other.pid) for other in others) - before
                    if others:
                        result["cpu_us_replica"] = used / len(others) / result["count"] * 1e6
                    rows.add(f"{replicas} replicas", side, result)
            shutil.rmtree(home, ignore_errors=True)
    return list(rows.by_name.values())


@contextlib.contextmanager
def replicated(side: str, home: Path, folder: Path, replicas: int) -> Iterator[tuple[Broker, list[Broker]]]:
    """A master and its replicas, once they follow it."""
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(Twinlog().name_server(folder / "names"))
        brokers = []
        for number in range(replicas + 1):
            role = "SLAVE" if number else "ASYNC_MASTER"
            started = running(side, home / str(number), names.address, brokerRole=role, brokerId=str(number))
            brokers.append(stack.enter_context(started)[0])
        time.sleep(8 if side == "java" and replicas else 2)  # a Java replica looks for its master every five seconds
        yield brokers[0], brokers[1:]


# ---- consumers


def measure_consumers(folder: Path, sizes: Sizes) -> list[Row]:
    rows = Rows()
    for side in sizes.sides:
        with names_and(side, folder / side, folder) as (broker, _):
            warm_up(side, broker, sizes)
            load("consumers", broker, "--consumers", 8, "--rate", RATE, "--seconds", sizes.seconds)
            for _ in range(sizes.rounds):
                for consumers in sizes.consumers:
                    given = ("--consumers", consumers, "--rate", RATE, "--seconds", sizes.seconds)
                    rows.add(f"{consumers} consumers", side, load("consumers", broker, *given))
    return list(rows.by_name.values())


# ---- log


def measure_log(folder: Path, sizes: Sizes) -> list[Row]:
    """Seconds until a broker serves: after kill -9 in the middle of sends, and after a clean stop."""
    rows = Rows()
    for gib in sizes.log_gib:
        free = shutil.disk_usage(folder).free
        if free < (gib + 5) * GIB:
            console.print(f"  a log of {gib} GiB is left out: {free / GIB:.0f} GiB are free")
            continue
        home = folder / f"log-{gib}"
        command = [sys.executable, "-m", "bench.growth_log", str(home / "store"), str(gib), str(LOG_BODY)]
        subprocess.run(command, cwd=ROOT, timeout=1800)  # it ends with kill -9
        for side in sizes.sides:
            with names_and(side, home, folder) as (broker, seconds):
                rows.add(f"log of {gib} GiB, after kill -9", side, {"ready_s": seconds, "rss_mb": rss_mb(broker.pid)})
                broker.stop()
            with names_and(side, home, folder) as (broker, seconds):
                rows.add(f"log of {gib} GiB, after a clean stop", side, {"ready_s": seconds})
        shutil.rmtree(home, ignore_errors=True)
        os.sync()
    return list(rows.by_name.values())


PARTS = {
    "growth-topics": measure_topics,
    "growth-connections": measure_connections,
    "growth-replicas": measure_replicas,
    "growth-consumers": measure_consumers,
    "growth-log": measure_log,
}
