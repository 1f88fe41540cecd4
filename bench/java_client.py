"""The real Java client as load: its producers and push consumers against both brokers in turn.

One JVM (tests/interop/java/5.5.0/ClientLoad.java) does all rounds. Its own work takes most of two cores, so the ratio
says what a Java application gains. The broker's CPU per message is measured beside it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_rocketmq import CLIENT_OPTIONS

from bench.connections import LoadFailed, connect, create_topics, queue_ends, wait_route
from bench.lanes import fill_shape, wait_at_least
from bench.rows import Row, console
from bench.sends import CPU_GOAL, keep
from bench.servers import Brokers, FullSpeedJava, both_brokers, cpu_seconds, in_turn
from bench.shapes import BACKLOG, BACKLOG_KEPT, BACKLOG_SQL, BACKLOG_TAG, DELAY_LEVEL, DELAY_TOPIC, QUEUES


@dataclass(frozen=True, slots=True)
class Scene:
    title: str
    goal: float
    kind: str  # the name that ClientLoad has for it
    filter: str = ""
    kept: int = 1  # one message of so many passes the filter

    @property
    def consumes(self) -> bool:
        return self.kind.startswith("push")


SCENES = {
    "sync": Scene("sync, 16 threads", 1.2, "sync"),
    "async": Scene("async, 256 in flight", 1.2, "async"),
    "ordered": Scene("ordered, 16 threads", 1.2, "ordered"),
    "batch": Scene("batches of 16, 16 threads", 1.0, "batch"),
    "delay": Scene("delay level, 16 threads", 1.2, "delay"),
    "transactions": Scene("transactions, 16 threads", 1.2, "transactions"),
    "push": Scene("push", 1.2, "push", "*"),
    "push-tag": Scene("push, a tag that keeps 10 %", 1.2, "push", BACKLOG_TAG, BACKLOG_KEPT),
    "push-sql": Scene("push, SQL92 that keeps 10 %", 1.0, "push-sql", BACKLOG_SQL, BACKLOG_KEPT),
}
# Scenes that share a pair of brokers: what one leaves behind (half messages, a timer) must not meet the next.
_GROUPS = (("sync", "async", "ordered", "batch"), ("delay",), ("transactions",), ("push", "push-tag", "push-sql"))


def measure_java_client(
    folder: Path, *, rounds: int, seconds: float, backlog: int, names: Sequence[str] | None = None, quick: bool = False
) -> list[Row]:
    """A quick run has one pair of brokers for all, and warms up with one scene."""
    rows = {name: _rows(name) for name in names or SCENES}
    with java_client(folder / "client") as client:
        for number, group in enumerate((tuple(SCENES),) if quick else _GROUPS):
            chosen = {name: rows[name] for name in group if name in rows}
            if chosen:
                with both_brokers(folder / str(number), enablePropertyFilter="true") as brokers:
                    _measure_group(client, brokers, chosen, rounds, seconds, backlog, warm=1 if quick else len(chosen))
    return [row for pair in rows.values() for row in pair]


def _measure_group(
    client: JavaClient,
    brokers: Brokers,
    rows: dict[str, tuple[Row, Row]],
    rounds: int,
    seconds: float,
    backlog: int,
    warm: int,
) -> None:
    for side, address in brokers.addresses.items():
        for topic in (_topic(side), _backlog(side)):
            create_topics(address, [topic], QUEUES)
            wait_route(brokers.name_server, topic)
        if any(SCENES[name].consumes for name in rows):
            fill_shape(address, _backlog(side), BACKLOG, backlog)
    for number in range(-1, rounds):  # the first round warms up
        for name, pair in list(rows.items())[: warm if number < 0 else None]:
            for side in in_turn(number):
                before = cpu_seconds(brokers.pids[side])
                count, taken = _round(client, SCENES[name], brokers, side, seconds, backlog)
                cpu_us = (cpu_seconds(brokers.pids[side]) - before) / count * 1e6
                if number >= 0:
                    keep(pair, side, count / taken, cpu_us)
        console.print(f"  Java client, {', '.join(rows)}: round {number + 1} of {rounds}")


def _round(
    client: JavaClient, scene: Scene, brokers: Brokers, side: str, seconds: float, backlog: int
) -> tuple[int, float]:
    """(messages, seconds) of one round; what was sent is looked for in the store."""
    topic = _backlog(side) if scene.consumes else _topic(side)
    queues = [(DELAY_TOPIC, DELAY_LEVEL - 1)] if scene.kind == "delay" else [(topic, queue) for queue in range(QUEUES)]
    with connect(brokers.addresses[side]) as control:
        before = queue_ends(control, queues)
        words = [scene.kind, brokers.name_server, topic, str(seconds), str(backlog // scene.kept), scene.filter]
        result = client.run(words)
        if not scene.consumes:
            wait_at_least(control, queues, before + result["count"])
        elif result["extra"]:
            raise LoadFailed(f"{scene.title}: {result['extra']} messages too many from {side}")
    return result["count"], result["seconds"]


def _topic(side: str) -> str:
    return f"Client-{side}"


def _backlog(side: str) -> str:
    return f"Backlog-{side}"


def _rows(name: str) -> tuple[Row, Row]:
    title = f"Java client, {SCENES[name].title}"
    return (
        Row(title, "messages/s", f">= {SCENES[name].goal:g}"),
        Row(f"CPU of the broker: {title}", "us", f">= {CPU_GOAL:g}", higher_is_better=False),
    )


class JavaClient:
    """The running JVM: one line in, one line out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, words: list[str]) -> dict:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # the client's libraries print, too
            line = self._process.stdout.readline()
        result = json.loads(line or '{"error": "the client ended"}')
        if "error" in result:
            raise LoadFailed(f"Java client, {' '.join(words)}: {result['error']}")
        return result


@contextlib.contextmanager
def java_client(home: Path) -> Iterator[JavaClient]:
    command = FullSpeedJava()._command("ClientLoad", home=home, heap_mb=1024, options=CLIENT_OPTIONS)
    with (
        (home / "errors.txt").open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield JavaClient(process)
        finally:
            process.kill()
