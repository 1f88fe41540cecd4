"""Ports that are given to servers of tests: no two tests get the same one."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from tests.interop import processes
from tests.interop.processes import ServerFailed, free_port

OTHER = """
import sys
from tests.interop import processes
processes._PORTS = range(int(sys.argv[1]), int(sys.argv[2]))
try:
    print(processes.free_port())
except processes.ServerFailed:
    print("none")
"""


def test_a_port_is_given_once_also_to_another_process(monkeypatch: pytest.MonkeyPatch):
    first = free_port(beside=(1, 2))
    monkeypatch.setattr(processes, "_PORTS", range(first, first + 3))
    with pytest.raises(ServerFailed, match=f"no free port between {first} and {first + 2}"):
        free_port()
    other = subprocess.run(
        [sys.executable, "-c", OTHER, str(first), str(first + 3)], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == "none"


def test_a_port_with_a_listener_beside_it_is_not_given(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(processes, "_PORTS", range(port - 1, port))
        with pytest.raises(ServerFailed):
            free_port(beside=(1,))
