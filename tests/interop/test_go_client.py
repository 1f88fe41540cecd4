"""The Go client (rocketmq-client-go v2): producer, push consumer with tags, batch, one-way and orderly consumption."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster
from tests.interop.toolchain import cache_directory, find_tool, unavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SOURCES = Path(__file__).parent / "go"


@functools.cache
def round_trip_program() -> Path:
    """Our Go program, built once per version of its sources; Go fetches the client library by itself."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    program = cache_directory() / "go" / f"round-trip-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        command = [find_tool("go"), "build", "-o", str(program), "."]
        built = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=580)
        if built.returncode:
            unavailable(f"go build failed: {built.stderr.strip().splitlines()[-1]}")
    return program


@pytest.fixture(scope="module")
def saw(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict:
    addresses = (cluster.names.address, cluster.broker.address)
    command = [str(round_trip_program()), *addresses, "T_go", "G_go"]
    environment = {"HOME": str(tmp_path_factory.mktemp("go")), "ROCKETMQ_GO_LOG_LEVEL": "error"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def test_go_sends_are_acknowledged(saw):
    assert saw["sent"] == ["0"] * 5  # the client's number for SEND_OK
    assert saw["batch"] == "0"


def test_a_go_push_consumer_gets_the_tags_it_subscribed_to(saw):
    by_body = {message["body"]: message for message in saw["received"]}
    assert sorted(by_body) == ["go-0", "go-2", "go-3", "go-batch-0", "go-batch-1", "go-oneway"]
    assert (by_body["go-2"]["tags"], by_body["go-2"]["keys"], by_body["go-2"]["shade"]) == ("green", "go-key-2", "dark")


def test_a_go_orderly_consumer_gets_one_order_in_order(saw):
    assert saw["ordered"] == [f"step-{number}" for number in range(5)]
