"""Server processes of a test: free ports, start, ready, stop, kill -9."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self


class ServerFailed(Exception):
    """A server process died or did not become ready; the message ends with its last output."""


class Server:
    """One running server process. Leaving the `with` block kills it; call `stop()` for a clean end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        home: Path,
        port: int,
        ready: str,
        env: Mapping[str, str] = {},
        host: str = "127.0.0.1",
    ):
        self.home, self.host, self.port, self.command = home, host, port, list(command)
        self.address = f"{host}:{port}"
        self.output = home / "output.txt"
        home.mkdir(parents=True, exist_ok=True)
        self._ready = ready.encode()
        self._env = {**os.environ, **env}
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, seconds_max: float = 120) -> Self:
        """Return once the ready line was printed and the port takes connections."""
        deadline = time.monotonic() + seconds_max
        while not (self._ready in self._new_output() and accepts(self.port, self.host)):
            if self._process.poll() is not None:
                raise ServerFailed(f"{self._name()} ended with status {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self._name()} is not ready after {seconds_max} s:\n{self.tail()}")
            time.sleep(0.05)
        return self

    def wait_registered(self, name_server: str, seconds_max: float = 120) -> Self:
        """Return once a name server knows this broker. Java: a 5.x broker may say it is ready well before that."""
        deadline = time.monotonic() + seconds_max
        while name_server and not is_registered(self.address, name_server):
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self._name()} did not register with {name_server} in {seconds_max} s")
            time.sleep(0.1)
        return self

    def stop(self, seconds_max: float = 120) -> int:
        """End cleanly with SIGTERM and return the exit status. A real broker takes 12 to 15 s for it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"{self._name()} ignored SIGTERM for {seconds_max} s:\n{self.tail()}") from None

    def pause(self) -> None:
        """SIGSTOP: the process does nothing, its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """kill -9, as a power cut would; harmless on a process that has ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def _start(self) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as output:
            self._output_start = output.tell()
            return subprocess.Popen(
                self.command, cwd=self.home, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _new_output(self) -> bytes:
        with self.output.open("rb") as output:
            output.seek(self._output_start)
            return output.read()

    def _name(self) -> str:
        return f"{type(self).__name__} of {self.home.name} (pid {self.pid})"


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def is_registered(broker: str, name_server: str) -> bool:
    """Whether the first of the name servers knows the broker's address (request 106, cluster info)."""
    header = b'{"code":106,"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
    host, port = name_server.split(";")[0].rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=3) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
            answer = connection.makefile("rb")
            (length,) = struct.unpack(">i", answer.read(4))
            return broker.encode() in answer.read(length)
    except (OSError, struct.error):
        return False


def free_port(beside: Sequence[int] = ()) -> int:
    """A port that is free together with its neighbours, e.g. `beside=(-2, 1)` for a broker.

    No other test is given one of them until this process ends: a Java broker listens only seconds after it was started.
    """
    for _ in range(1000):
        port = random.choice(_PORTS)
        if _reserve([port + step for step in (0, *beside)]):
            return port
    raise ServerFailed(f"no free port between {_PORTS[0]} and {_PORTS[-1]} in 1000 attempts")


def _ports_of_servers() -> range:
    """The longer of both ranges beside the one from which the system picks ports for outgoing connections."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except OSError:  # not Linux
        low, high = 32_768, 65_535
    return max(range(12_000, low - 10), range(high + 10, 65_500), key=len) or range(12_000, 32_000)


_PORTS = _ports_of_servers()
_reserved: list[socket.socket] = []  # one per port that this process was given


def _reserve(ports: Sequence[int]) -> bool:
    marks = [socket.socket(socket.AF_UNIX) for _ in ports]
    try:
        for mark, port in zip(marks, ports, strict=True):
            mark.bind(f"\0twinlog-test-port-{port}")  # a name without a file; the system drops it with the process
            _check_free(port)
    except OSError:
        for mark in marks:
            mark.close()
        return False
    _reserved.extend(marks)
    return True


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("0.0.0.0", port))
