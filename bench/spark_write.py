"""The sink `rocketmq` beside Spark's Kafka sink: the same rows, in one session, to brokers that run side by side.

The rows come from a range, whose bodies cost next to nothing to make, and both sinks have their defaults: nothing is
compressed, and a task ends when everything is acknowledged. Kafka's producer 3.9 then waits for all replicas (there is
one), is idempotent within its session, fills batches of 16 KiB and does not linger. Neither broker waits for its disk.
The first of a round is the last of the next.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop.twinlog_servers import Twinlog

from bench.kafka import connector_jars, kafka
from bench.rows import Row, console
from bench.servers import cpu_seconds, running
from bench.spark_runner import Runner, spark_runner
from bench.spark_sources import TOPIC, create_topic

BODY = "cast(concat(lpad(string(id), 10, '0'), repeat('x', 1014)) as binary)"


@dataclass(frozen=True)
class Sinks:
    """A session and the brokers it writes to."""

    runner: Runner
    name_server: str
    bootstrap: str
    pids: dict[str, int]
    rows: int

    def kafka(self) -> tuple[float, float]:
        target = {"kafka.bootstrap.servers": self.bootstrap, "topic": TOPIC}
        return self._write("kafka", f"{BODY} value", target)

    def twinlog(self, **options: str) -> tuple[float, float]:
        return self._write("rocketmq", f"{BODY} body", {"nameServer": self.name_server, "topic": TOPIC, **options})

    def _write(self, sink: str, column: str, options: dict[str, str]) -> tuple[float, float]:
        """Rows per second, and CPU seconds of a million rows with the broker's share."""
        before = cpu_seconds(self.pids[sink])
        found = self.runner.run(range=self.rows, select=[column], to=sink, to_options=options)
        cpu = found["cpu"] + cpu_seconds(self.pids[sink]) - before
        return self.rows / found["seconds"], cpu / self.rows * 1e6


def measure_write(folder: Path, *, rounds: int, messages: int) -> list[Row]:
    """Rows per second and CPU of a write; "java" is Spark's Kafka sink in every row."""
    kinds = ("", ", no row twice")
    rates = [
        Row(f"Spark write to a Twinlog broker{kind}, 1 KiB (Java's column: Kafka sink)", "rows/s", ">= 1")
        for kind in kinds
    ]
    cpus = [
        Row(f"Spark write{kind}: CPU of 1 million rows, broker included (Kafka)", "s", "", higher_is_better=False)
        for kind in kinds
    ]
    with sinks(folder, messages) as to:
        for number in range(rounds + 1):  # the first round warms all of them up
            stamped = {"idempotent": "true", "writeId": f"round-{number}"}
            writes = [("kafka", to.kafka), ("ours", to.twinlog), ("stamped", functools.partial(to.twinlog, **stamped))]
            found = {name: write() for name, write in (reversed(writes) if number % 2 else writes)}
            if not number:
                continue
            for at, name in enumerate(("ours", "stamped")):
                for row, mine, other in zip((rates[at], cpus[at]), found[name], found["kafka"], strict=True):
                    row.twinlog.append(mine)
                    row.java.append(other)
            console.print(f"  Spark, write: round {number} of {rounds}")
    return [*rates, *cpus]


@contextlib.contextmanager
def sinks(folder: Path, rows: int) -> Iterator[Sinks]:
    """Empty brokers of both kinds with eight queues each, and a session with two cores."""
    with (
        kafka(folder / "kafka") as (bootstrap, kafka_pid),
        Twinlog().name_server(folder / "names") as names,
        running("twinlog", folder / "twinlog", names.address) as (broker, _),
        spark_runner("local[2]", connector_jars()) as runner,
    ):
        create_topic(names.address)
        yield Sinks(runner, names.address, bootstrap, {"kafka": kafka_pid, "rocketmq": broker.pid}, rows)
