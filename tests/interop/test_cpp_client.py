"""The C++ client, through the PyPI package `rocketmq` 0.4.4 whose wheel carries the library."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.toolchain import cache_directory, unavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

PACKAGE = "rocketmq==0.4.4"


@functools.cache
def cpp_package() -> Path:
    """A folder for PYTHONPATH with the package; it is not installed, as it would be in the way of others."""
    folder = cache_directory() / "cpp" / PACKAGE
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            done = subprocess.run([*pip, "-d", work, PACKAGE], capture_output=True, text=True, timeout=200)
            if done.returncode:
                unavailable(f"pip could not fetch {PACKAGE}: {done.stderr.strip().splitlines()[-1]}")
            (wheel,) = Path(work).glob("*.whl")
            zipfile.ZipFile(wheel).extractall(Path(work, "package"))
            Path(work, "package").rename(folder)
    return folder


@pytest.fixture(scope="module")
def saw(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict:
    home = tmp_path_factory.mktemp("cpp")
    create = f"updateTopic -n {cluster.names.address} -b {cluster.broker.address} -t T_cpp -r 2 -w 2".split()
    assert "success" in JavaRocketmq().mqadmin(*create)
    program = Path(__file__).parent / "cpp" / "round_trip.py"
    command = [sys.executable, str(program), cluster.names.address, "T_cpp", "G_cpp"]
    environment = {**os.environ, "PYTHONPATH": str(cpp_package()), "HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=home)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(lines[-1])


def test_cpp_sends_are_acknowledged(saw):
    assert saw["sent"] == [0] * 4
    assert saw["ordered"] == 0


def test_a_cpp_push_consumer_gets_the_tags_it_subscribed_to(saw):
    by_body = {message["body"]: message for message in saw["received"]}
    assert sorted(by_body) == ["cpp-0", "cpp-2", "cpp-3", "cpp-oneway", "cpp-orderly"]
    assert by_body["cpp-2"] == {"body": "cpp-2", "tags": "green", "keys": "key-cpp-2", "shade": "dark"}
