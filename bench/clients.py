"""The Python client beside the Java client and the C++ client's Python wrapper, all with one Twinlog broker.

Each row is one kind of work: sends one after another, 64 at a time, the blocking facade, a push consumer. The other
client stands where other rows have Java's broker; the goals are half of Java's client, and the C++ wrapper's rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.test_cpp_client import cpp_package
from tests.interop.twinlog_servers import Twinlog

from bench.connections import create_topics, wait_route
from bench.java_client import JavaClient, java_client
from bench.lanes import fill_shape
from bench.rows import Row, console
from bench.servers import running
from bench.shapes import BACKLOG, QUEUES

JAVA_GOAL, CPP_GOAL = 0.5, 1.0
_SENDS, _BACKLOG = "Clients", "ClientsBacklog"
_HERE = Path(__file__).parent
# What is measured, our kind of work, and the kind that the others do for it.
WORK = {
    "sends, one by one": ("one", "one"),
    "sends, 64 at a time": ("many", "many"),
    "sends, blocking facade": ("sync", "one"),
    "push, coroutine": ("push", "push"),
    "push, plain function": ("push-plain", "push"),
}


def measure_clients(folder: Path, *, rounds: int, seconds: float, backlog: int) -> list[Row]:
    alone = Row("Python client: sends, 1,024 at a time, auto_batch", "messages/s", "")
    with (
        Twinlog().name_server(folder / "names") as names,
        running("twinlog", folder / "broker", names.address) as (broker, _),
        java_client(folder / "client") as java,
    ):
        for topic in (_SENDS, _BACKLOG):
            create_topics(broker.address, [topic], QUEUES)
            wait_route(names.address, topic)
        fill_shape(broker.address, _BACKLOG, BACKLOG, backlog)
        others = _others(java, names.address, seconds, backlog)
        rows = {(work, other): _row(work, other) for work in WORK for other in others}
        for number in range(-1, rounds):  # the first round warms up
            rates = {kind: _ours(names.address, kind, seconds, backlog) for kind, _ in WORK.values()}
            gathered = _ours(names.address, "auto-batch", seconds, backlog)
            theirs = {(other, kind): ask(kind) for other, ask in others.items() for kind in ("one", "many", "push")}
            if number >= 0:
                alone.twinlog.append(gathered)
                for (work, other), row in rows.items():
                    mine, other_kind = WORK[work]
                    row.twinlog.append(rates[mine])
                    row.java.append(theirs[other, other_kind])
            console.print(f"  clients: round {number + 1} of {rounds}")
    return [*rows.values(), alone]


def _row(work: str, other: str) -> Row:
    goal = JAVA_GOAL if other == "Java" else CPP_GOAL
    return Row(f"Python client beside the {other} client: {work}", "messages/s", f">= {goal:g}")


def _others(java: JavaClient, names: str, seconds: float, backlog: int) -> dict[str, Callable[[str], float]]:
    def ask_java(kind: str) -> float:
        topic = _BACKLOG if kind == "push" else _SENDS
        result = java.run([kind, names, topic, str(seconds), str(backlog), "*"])
        return result["count"] / result["seconds"]

    def ask_cpp(kind: str) -> float:
        return _load("cpp_load.py", names, kind, seconds, backlog, PYTHONPATH=package)

    try:
        package = str(cpp_package())
    except pytest.skip.Exception as missing:
        console.print(f"  without the C++ client: {missing}")
        return {"Java": ask_java}
    return {"Java": ask_java, "C++": ask_cpp}


def _ours(names: str, kind: str, seconds: float, backlog: int) -> float:
    return _load("client_load.py", names, kind, seconds, backlog)


def _load(program: str, names: str, kind: str, seconds: float, backlog: int, **environment: str) -> float:
    """Messages a second of one kind of work, in a process of its own; a group that is new reads the backlog."""
    topic, group = (_BACKLOG if kind.startswith("push") else _SENDS), f"G_{time.time_ns()}"
    words = [kind, names, topic, "--seconds", str(seconds), "--messages", str(backlog), "--group", group]
    command = [sys.executable, str(_HERE / program), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])["per_second"]
