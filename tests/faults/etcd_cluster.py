"""Three etcd processes that elect a leader among themselves; each can be killed, and started again on its data."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.failover.etcd_server import etcd_program
from tests.faults.group import Place
from tests.interop.processes import Server, free_port

MEMBERS = ("etcd0", "etcd1", "etcd2")


class EtcdCluster:
    def __init__(self, home: Path, places: Mapping[str, Place]) -> None:
        self._home, self._places = home, {name: places.get(name, Place()) for name in MEMBERS}
        self._ports = {name: free_port(beside=(1,)) for name in MEMBERS}
        self.servers: dict[str, Server] = {}

    @classmethod
    @contextlib.contextmanager
    def running(cls, home: Path, places: Mapping[str, Place] = {}) -> Iterator[EtcdCluster]:
        cluster = cls(home, places)
        try:
            for name in MEMBERS:
                cluster.start(name, wait=False)
            for server in cluster.servers.values():
                server.wait_ready(60)
            yield cluster
        finally:
            for server in cluster.servers.values():
                server.kill()

    @property
    def endpoints(self) -> list[str]:
        return [f"{self._places[name].host}:{self._ports[name]}" for name in MEMBERS]

    def start(self, name: str, *, wait: bool = True) -> None:
        """`wait` returns once it serves, which takes a majority of the members."""
        place, port = self._places[name], self._ports[name]
        client, peer = f"http://{place.host}:{port}", self._peer(name)
        command = [*place.before, etcd_program(), "--name", name, "--data-dir", str(self._home / name / "data")]
        command += ["--logger", "zap", "--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", ",".join(f"{each}={self._peer(each)}" for each in MEMBERS)]
        ready = "serving client traffic"
        server = Server(command, home=self._home / name, port=port, ready=ready, host=place.host)
        self.servers[name] = server.wait_ready(60) if wait else server

    def kill(self, *names: str) -> None:
        for name in names:
            self.servers[name].kill()

    def leader(self) -> str:
        """The member that leads the others, as they have agreed."""
        ids: dict[str, str] = {}
        leader = ""
        for name, endpoint in zip(MEMBERS, self.endpoints, strict=True):
            request = urllib.request.Request(f"http://{endpoint}/v3/maintenance/status", data=b"{}", method="POST")
            with urllib.request.urlopen(request, timeout=10) as answer:
                status = json.load(answer)
            ids[status["header"]["member_id"]] = name
            leader = status.get("leader", leader)
        return ids[leader]

    def back(self, *names: str) -> None:
        for name in names:
            self.start(name, wait=False)

    def start_ended(self) -> int:
        """Start those that have ended by themselves; how many."""
        ended = [name for name, server in self.servers.items() if server.has_ended]
        self.back(*ended)
        return len(ended)

    def _peer(self, name: str) -> str:
        return f"http://{self._places[name].host}:{self._ports[name] + 1}"
