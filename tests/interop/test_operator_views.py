"""What operators look at, on a Java cluster: top, diagnose, and the trace of a real Java client beside mqadmin's."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.replica_pair import Pair, until
from tests.interop.twinlog_servers import Twinlog
from typer.testing import CliRunner

from twinlog.cli.main import app

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair.running(tmp_path_factory.mktemp("java"), "java-5.5.0", "java-5.5.0", "ASYNC_MASTER") as java:
        java.joined()
        java.send(20)
        java.logs_equal()
        yield java


def run(pair: Pair, *words: str) -> str:
    shown = CliRunner().invoke(app, [*words, "-n", pair.names.address])
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_top_shows_a_java_pair(pair: Pair):
    data = json.loads(run(pair, "top", "--json"))
    assert [(one["Addr"], one["ID"]) for one in data["brokers"]] == [
        (pair.master.address, 0),
        (pair.replica.address, 1),
    ]
    assert all(one["Version"].startswith("RocketMQ 5.5.0") for one in data["brokers"])
    assert data["replicas"][0]["Lag"] == 0
    assert sum(one["Stored"] or 0 for one in data["topics"]) >= 20


def test_diagnose_finds_a_java_replica_well_and_a_group_that_nobody_reads(pair: Pair):
    shown = run(pair, "diagnose", "replica")
    assert f"at {pair.replica.address}" in shown and "PROBLEM" not in shown
    run(pair, "admin", "updateSubGroup", "-g", "lonely-group", "-b", pair.master.address)
    lonely = CliRunner().invoke(app, ["diagnose", "group", "lonely-group", "-n", pair.names.address])
    assert lonely.exit_code == 1 and "no member is online" in lonely.output


def test_the_trace_of_a_java_client_is_shown_as_mqadmin_shows_it(tmp_path: Path):
    java, ours = JavaRocketmq("5.5.0"), Twinlog()
    with (
        ours.name_server(tmp_path / "namesrv") as names,
        ours.broker(tmp_path / "broker", names.address, traceTopicEnable="true"),
    ):
        send_words = ["sendMessage", "-t", "Traced", "-p", "hello", "-m", "true", "-n", names.address]
        words: list[str] = []

        def shown() -> dict[str, list[dict[str, Any]]]:
            found = CliRunner().invoke(app, ["admin", *words, "--json"])
            return json.loads(found.output) if found.exit_code == 0 else {}

        def sent_with_trace() -> bool:
            """mqadmin gives its trace little time when it ends; on a busy machine some are lost, and it sends again."""
            (message_id,) = re.findall(r"\b[0-9A-F]{32}\b", java.mqadmin(*send_words))
            words[:] = ["queryMsgTraceById", "-i", message_id, "-n", names.address]
            deadline = time.monotonic() + 5
            while not shown() and time.monotonic() < deadline:
                time.sleep(0.2)
            return bool(shown())

        until(sent_with_trace, "a trace is stored")
        (send,) = shown()["sends"]
        assert (send["type"], send["topic"], send["status"]) == ("Pub", "Traced", "success")
        theirs = java.mqadmin(*words)
        assert send["group"] in theirs and f"{send['costMs']}ms" in theirs and "success" in theirs
