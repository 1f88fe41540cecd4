"""A real etcd process for tests: from PATH, or fetched once with apt-get into the cache of the tests, without root."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.interop.processes import Server, free_port
from tests.interop.toolchain import cache_directory


@functools.cache
def etcd_program() -> str:
    """The path of etcd, or a skip with one line that says why there is none."""
    if found := shutil.which("etcd"):
        return found
    cached = cache_directory() / "etcd" / "usr" / "bin" / "etcd"
    if not cached.exists():
        problem = _fetch(cached.parents[2])
        if problem:
            pytest.skip(f"needs etcd: not on PATH, and {problem}; install etcd-server to run this test")
    return str(cached)


def _fetch(target: Path) -> str | None:
    """Unpack Debian's etcd-server below `target`; returns the problem, if there is one."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "this is not a Debian machine"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        private = [
            "-o",
            f"Dir::State::lists={work}/lists",
            "-o",
            f"Dir::Cache={work}/cache",
            "-o",
            "Debug::NoLocking=1",
        ]
        Path(work, "lists", "partial").mkdir(parents=True)
        Path(work, "cache", "archives", "partial").mkdir(parents=True)
        plain = [["apt-get", "download", "etcd-server"]]
        with_lists = [["apt-get", *private, "update"], ["apt-get", *private, "download", "etcd-server"]]
        for commands in (plain, with_lists):
            if all(subprocess.run(one, cwd=work, capture_output=True).returncode == 0 for one in commands):
                package = next(Path(work).glob("etcd-server_*.deb"))
                subprocess.run(["dpkg-deb", "-x", package, Path(work, "root")], check=True, capture_output=True)
                with contextlib.suppress(OSError):  # another worker was faster
                    Path(work, "root").rename(target)
                return None
    return "apt-get cannot fetch etcd-server"


def start_etcd(home: Path, port: int = 0) -> Server:
    """One etcd on `home`/data; started again on the same directory and port, it goes on where it was."""
    port = port or free_port(beside=(1,))
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    command = [etcd_program(), "--data-dir", str(home / "data"), "--logger", "zap"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url]
    command += ["--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"]
    return Server(command, home=home, port=port, ready="serving client traffic").wait_ready(30)
