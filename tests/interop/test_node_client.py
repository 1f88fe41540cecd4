"""The pure JavaScript client that Node programs use (ali-ons): sends, a push consumer with tags, a message again."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.toolchain import cache_directory

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

SOURCES = Path(__file__).parent / "node"


def node_tool(name: str) -> str:
    """Node is not part of the matrix that TWINLOG_REQUIRE_INTEROP promises: without it, its tests skip."""
    return shutil.which(name) or pytest.skip(f"the Node client needs `{name}` on PATH; install it to run this test")


@functools.cache
def node_modules() -> Path:
    """The client and what it needs, fetched by npm once per version of our package.json."""
    digest = hashlib.sha256((SOURCES / "package.json").read_bytes()).hexdigest()[:16]
    folder = cache_directory() / "node" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            shutil.copy(SOURCES / "package.json", work)
            command = [node_tool("npm"), "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=200)
            if done.returncode:
                pytest.skip(f"npm could not fetch the Node client: {(done.stderr.strip() or 'no reason given')[-200:]}")
            Path(work, "node_modules").rename(folder)
    return folder


@pytest.fixture(scope="module")
def saw(cluster: Cluster) -> dict:
    node, modules = node_tool("node"), node_modules()
    create = f"updateTopic -n {cluster.names.address} -b {cluster.broker.address} -t T_node -r 2 -w 2".split()
    assert "success" in JavaRocketmq().mqadmin(*create)
    command = [node, str(SOURCES / "round_trip.js"), cluster.names.address, "T_node", "G_node"]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def test_node_sends_are_acknowledged(saw):
    assert saw["sent"] == ["SEND_OK"] * 5


def test_a_node_push_consumer_gets_the_tags_it_subscribed_to(saw):
    first = {message["body"]: message for message in saw["received"] if not message["reconsumeTimes"]}
    assert sorted(first) == ["node-0", "node-2", "node-4"]
    assert first["node-4"] | {"tags": "green", "keys": "node-key-4", "shade": "dark"} == first["node-4"]


def test_what_a_node_consumer_refuses_comes_again(saw):
    assert [(m["body"], m["reconsumeTimes"]) for m in saw["received"] if m["reconsumeTimes"]] == [("node-2", 1)]
