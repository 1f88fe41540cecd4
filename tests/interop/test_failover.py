"""Java's producer and consumer go on when the master of a group with automatic failover is killed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.failover_group import FailoverGroup
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.replica_pair import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_java_clients_go_on_with_the_new_master(tmp_path):
    java = JavaRocketmq("5.5.0")
    with FailoverGroup.running(tmp_path, failoverLeaseSeconds="2") as group:
        names = group.group.names.address
        group.in_sync(3)
        with (
            running(java, tmp_path / "consumer", "GroupMember", names, "CG_Java", "Faults") as consumed,
            running(java, tmp_path / "producer", "SteadyProducer", names, "PG_Java", "Faults") as acknowledged,
        ):
            until(lambda: len(acknowledged()) > 30 and len(consumed()) > 10, "messages flow", 90)
            before, _ = set(acknowledged()), group.kill_leader()
            until(lambda: len(acknowledged()) > len(before) + 30, "sends go on with the new master", 90)
            wanted = set(acknowledged())
            until(lambda: wanted <= {line.partition(" ")[2] for line in consumed()}, "all of it is consumed", 90)


@contextlib.contextmanager
def running(java: JavaRocketmq, home: Path, program: str, *words: str) -> Iterator[Callable[[], list[str]]]:
    """One of our Java programs while the block runs; it gives the lines that were printed so far."""
    home.mkdir()
    command, printed = java.client_command(program, *words, home=home), home / "printed.txt"
    with printed.open("w") as out, (home / "errors.txt").open("w") as errors:
        process = subprocess.Popen(command, cwd=home, stdin=subprocess.PIPE, stdout=out, stderr=errors)
    try:
        yield lambda: [line for line in printed.read_text().splitlines() if "body " in line]
    finally:
        process.kill()
        process.communicate()
