"""The Spark sources beside Spark's own Kafka source, in one session, on the same messages.

Rows are read into Spark's noop sink, which takes every column of every row and drops it. The archive writes Parquet.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.interop.twinlog_servers import Twinlog

from bench.kafka import connector_jars, kafka
from bench.rows import Row, console
from bench.servers import cpu_seconds, running
from bench.spark_cores import measure_cores
from bench.spark_runner import Runner, spark_runner
from twinlog.client import ClientError, NetError
from twinlog.client.sync import Admin
from twinlog.store.scan.scan import scan

TOPIC = "Bench"
QUEUES = 8
_PHYSICAL_OFFSET_AT = 28  # in a record
# What the Kafka source gives: key, value, topic, partition, offset, timestamp.
KAFKA_COLUMNS = (
    "keys string, body binary, topic string, queueId int, queueOffset bigint, storeTimestamp timestamp, sysFlag int"
)


@dataclass(frozen=True)
class Sources:
    """The same messages in a Twinlog broker, its store, a Java broker and a Kafka broker: how each is read."""

    jobs: dict[str, dict]
    pids: dict[str, int]
    store: Path


def measure_wire(folder: Path, *, rounds: int, messages: int) -> list[Row]:
    """Rows per second from brokers; "java" is the Kafka source in every row."""
    jobs = {
        "twinlog": "from a Twinlog broker",
        "twinlog-few": "from a Twinlog broker, Kafka's columns only",
        "java": "from a Java RocketMQ broker",
    }
    rows = {
        job: Row(f"Spark rows/s {text}, 1 KiB (Java's column: Kafka source)", "rows/s", "")
        for job, text in jobs.items()
    }
    rows["twinlog"].goal = ">= 1"
    cpu = Row("Spark wire source: CPU of 1 million rows, broker included (Kafka)", "s", ">= 1", higher_is_better=False)
    with filled(folder, messages, java=True) as (runner, sources):
        _warm(runner, sources)
        for number in range(rounds):
            theirs, theirs_cpu = _measure(runner, sources, "kafka")
            for job, row in rows.items():
                rate, seconds = _measure(runner, sources, job)
                row.twinlog.append(rate)
                row.java.append(theirs)
                if job == "twinlog":
                    cpu.twinlog.append(seconds)
                    cpu.java.append(theirs_cpu)
            console.print(f"  Spark, wire: round {number + 1} of {rounds}")
    return [*rows.values(), cpu]


def measure_store(folder: Path, *, rounds: int, messages: int, gigabytes: tuple[int, ...]) -> list[Row]:
    """Rows per second from a store directory, its memory as stores grow, and what a second core brings."""
    row = Row("Spark rows/s from a store directory, 1 KiB (Java's column: Kafka source)", "rows/s", ">= 1.5")
    memory = []
    with filled(folder, messages, java=False) as (runner, sources):
        _warm(runner, sources)
        for number in range(rounds):
            row.java.append(_measure(runner, sources, "kafka")[0])
            row.twinlog.append(_measure(runner, sources, "store")[0])
            console.print(f"  Spark, store: round {number + 1} of {rounds}")
        for size in gigabytes:
            large = _grow(folder / f"large-{size}", sources.store, size)
            found = runner.run(**_store(large))
            name = f"Spark store source, {size} GB: the largest worker"
            memory.append(Row(name, "MB RSS", "<= 500", higher_is_better=False, twinlog=[found["worker_mb"]]))
            if size != gigabytes[0]:
                shutil.rmtree(large)
    cores = measure_cores(_store(folder / f"large-{gigabytes[0]}"), rounds)  # the session above is over by now
    return [row, *cores, *memory]


@contextlib.contextmanager
def filled(folder: Path, messages: int, *, java: bool) -> Iterator[tuple[Runner, Sources]]:
    """Brokers with the same random bodies in eight queues each, and a session with two cores."""
    with contextlib.ExitStack() as stack:
        bootstrap, kafka_pid = stack.enter_context(kafka(folder / "kafka"))
        runner = stack.enter_context(spark_runner("local[2]", connector_jars()))
        servers, to_kafka = {"kafka.bootstrap.servers": bootstrap}, {"topic": TOPIC}
        jobs = {"kafka": {"format": "kafka", "options": {**servers, "subscribe": TOPIC, "startingOffsets": "earliest"}}}
        pids = {"kafka": kafka_pid}
        for side in ("twinlog", "java") if java else ("twinlog",):
            names = stack.enter_context(Twinlog().name_server(folder / f"names-{side}"))
            broker, _ = stack.enter_context(running(side, folder / side, names.address))
            pids[side], target = broker.pid, {"nameServer": names.address, "topic": TOPIC}
            create_topic(names.address)
            if side == "twinlog":
                runner.run(range=messages, select=["randstr(1024, 7) body"], to="rocketmq", to_options=target)
            else:
                runner.run(**jobs["twinlog"], select=["body"], to="rocketmq", to_options=target)
            jobs[side] = {"format": "rocketmq", "options": target}
        runner.run(**jobs["twinlog"], select=["body value"], to="kafka", to_options={**servers, **to_kafka})
        jobs["twinlog-few"], pids["twinlog-few"] = {**jobs["twinlog"], "schema": KAFKA_COLUMNS}, pids["twinlog"]
        store = folder / "twinlog" / "store"
        jobs["store"] = _store(store)
        yield runner, Sources(jobs, pids, store)


def create_topic(name_server: str) -> None:
    deadline = time.monotonic() + 60
    while True:  # a Java broker is ready some seconds before name servers know it
        try:
            with Admin(name_server) as admin:
                admin.create_topic(TOPIC, queues=QUEUES)
            return
        except (ClientError, NetError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _store(path: Path) -> dict:
    return {"format": "rocketmq_store", "options": {}, "path": str(path)}


def _warm(runner: Runner, sources: Sources) -> None:
    for job in sources.jobs.values():
        runner.run(**job)


def _measure(runner: Runner, sources: Sources, name: str) -> tuple[float, float]:
    """Rows per second, and CPU seconds of a million rows with the broker's share."""
    pid = sources.pids.get(name)
    before = cpu_seconds(pid) if pid else 0.0
    found = runner.run(**sources.jobs[name])
    cpu = found["cpu"] + (cpu_seconds(pid) - before if pid else 0.0)
    return _rate(found), cpu / found["rows"] * 1e6


def _rate(found: dict[str, float]) -> float:
    return found["rows"] / found["seconds"]


def _grow(target: Path, store: Path, gigabytes: int) -> Path:
    """A store of this many segments: the first one again and again, its records moved to where they then stand."""
    first = sorted((store / "commitlog").iterdir())[0]
    segment = bytearray(first.read_bytes())
    size, positions = len(segment), []
    for batch in scan(memoryview(segment), 0, size, 0, check_crc=False):
        positions.append(batch.position)
    rows = np.concatenate(positions)
    places = np.ndarray((size - _PHYSICAL_OFFSET_AT - 7,), ">i8", segment, _PHYSICAL_OFFSET_AT, (1,))
    (target / "commitlog").mkdir(parents=True)
    for number in range(gigabytes):
        places[rows] = rows + number * size
        (target / "commitlog" / f"{number * size:020d}").write_bytes(segment)
    return target
