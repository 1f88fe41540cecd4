"""A real etcd process for tests."""

from __future__ import annotations

from pathlib import Path

from tests.interop.debian_programs import debian_program
from tests.interop.processes import Server, free_port


def etcd_program() -> str:
    """The path of etcd, or a skip with one line that says why there is none."""
    return debian_program("etcd-server", "etcd")


def start_etcd(home: Path, port: int = 0) -> Server:
    """One etcd on `home`/data; started again on the same directory and port, it goes on where it was."""
    port = port or free_port(beside=(1,))
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    command = [etcd_program(), "--data-dir", str(home / "data"), "--logger", "zap"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url]
    command += ["--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"]
    return Server(command, home=home, port=port, ready="serving client traffic").wait_ready(30)
