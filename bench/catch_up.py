"""How fast a replica that is far behind catches up, queues and index included.

The same store is given to a Java and to a Twinlog master; a replica of either kind starts on a copy of its
beginning. The clock runs from the first byte the replica is seen to take until its queues hold everything.
Beside it, as the physical limit: the same number of bytes by sendfile over loopback into a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_rocketmq import Broker
from tests.interop.twinlog_servers import Twinlog

from bench.ballast import Ballast
from bench.load import ask, connect
from bench.servers import running
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.frame import take_frame
from twinlog.wire.java_json.fastjson import loads

SEGMENT = 256 << 20
CONF = {"mappedFileSizeCommitLog": str(SEGMENT), "slaveReadEnable": "true"}
TOPIC = "CatchUp"
MEMORY = ("untouched", "touched")  # see `ballast`


@dataclass(frozen=True)
class Stores:
    """A master's full store, and the beginning of it that a replica starts with."""

    whole: Path
    beginning: Path
    messages: int

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.whole / "commitlog").iterdir())


def make_stores(home: Path, body: int, megabytes: int, load: Callable[..., dict]) -> Stores:
    """Fill a store through a broker, so that its metadata is there too; Java and Twinlog read the same files."""
    with Twinlog().name_server(home / "names") as names:
        first = 1000
        with running("twinlog", home / "whole", names.address, **CONF) as (broker, _):
            load("fill", broker.address, TOPIC, "--body", body, "--messages", first)
            broker.stop()
        _copy(home / "whole" / "store", home / "beginning")
        messages = (megabytes << 20) // (body + 250)
        with running("twinlog", home / "whole", names.address, **CONF) as (broker, _):
            load("fill", broker.address, TOPIC, "--body", body, "--messages", messages)
            count = int(number(broker.address, 30, {"topic": TOPIC, "queueId": "0"}, "offset"))
            broker.stop()
    return Stores(home / "whole" / "store", home / "beginning", count)


def measure(home: Path, stores: Stores, master: str, replica: str, memory: str) -> float:
    """MB/s of one catch-up; `memory` is one of MEMORY."""
    with Twinlog().name_server(home / "names") as names, contextlib.ExitStack() as stack:
        for name, source in (("master", stores.whole), ("replica", stores.beginning)):
            _copy(source, home / name / "store")
        running_master = running(master, home / "master", names.address, brokerRole="ASYNC_MASTER", **CONF)
        stack.enter_context(running_master)
        os.sync()
        with memory_for(stores, memory) as ballast:
            second = running(replica, home / "replica", names.address, brokerRole="SLAVE", brokerId="1", **CONF)
            broker, _ = stack.enter_context(second)
            rate = _watch(broker, stores.messages, ballast)
    shutil.rmtree(home, ignore_errors=True)
    return rate


def _watch(broker: Broker, messages: int, ballast: Ballast) -> float:
    """MB/s from the first growth that is seen until the queue is complete."""
    with connect(broker.address) as connected:
        first_end = last_end = _log_end(connected)
        begun = time.perf_counter()
        deadline = begun + 300
        while (now := time.perf_counter()) < deadline:
            last_end = _log_end(connected)
            if last_end == first_end:
                begun = now
                time.sleep(0.01)
                continue
            ballast.release(last_end - first_end)
            if _queue_end(connected) >= messages:
                return (last_end - first_end) / (time.perf_counter() - begun) / 1e6
            time.sleep(0.03)  # asking costs the replica time, too
    raise RuntimeError(f"the replica has not caught up in 300 s: {last_end}\n{broker.tail()}")


def memory_for(stores: Stores, memory: str) -> Ballast:
    """Put free memory into one of the states that `ballast` describes."""
    return Ballast.untouched(stores.bytes) if memory == "untouched" else Ballast.touched(stores.bytes)


class LogEnd:
    """Reads a broker's log end over a connection of its own."""

    def __init__(self, address: str) -> None:
        self._connected = connect(address)

    def read(self) -> int:
        return _log_end(self._connected)


def _log_end(connected: socket.socket) -> int:
    answer = _answer(connected, 28, None)
    while answer.code != 0:  # a Java broker that has just started fails to answer at first
        time.sleep(0.05)
        answer = _answer(connected, 28, None)
    return int(loads(answer.body or b"{}")["table"]["commitLogMaxOffset"])


def _queue_end(connected: socket.socket) -> int:
    answer = _answer(connected, 30, {"topic": TOPIC, "queueId": "0"})
    return int((answer.fields or {}).get("offset", "0"))


def _answer(connected: socket.socket, code: int, fields: dict[str, str] | None) -> Command:
    frame = take_frame(bytearray(ask(connected, encode_command(Command(code, 1, fields=fields)))))
    assert frame is not None
    return decode_command(frame)


def number(address: str, code: int, fields: dict[str, str], wanted: str) -> str:
    with connect(address) as connected:
        return (_answer(connected, code, fields).fields or {})[wanted]


def _copy(source: Path, target: Path) -> None:
    """A copy that keeps holes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)


def raw_copy(home: Path, stores: Stores, memory: str) -> float:
    """MB/s of the same log by sendfile to a socket and from there into a preallocated file, two processes.

    Its source is copied and synced just as a master's store is, and its memory is in the same state as a replica's.
    """
    _copy(stores.whole / "commitlog", home / "source")
    os.sync()
    files = sorted((home / "source").iterdir())
    size = stores.bytes
    with memory_for(stores, memory) as ballast, socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", _RECEIVER, str(server.getsockname()[1]), str(home / "target"), str(size)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        connected, _ = server.accept()
        with connected:
            ballast.release(size)
            for path in files:
                with path.open("rb") as file:
                    connected.sendfile(file)
        printed, _ = child.communicate(timeout=120)
    shutil.rmtree(home, ignore_errors=True)
    return float(json.loads(printed))


_RECEIVER = """
import os, socket, sys, time
connected = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
size, file = int(sys.argv[3]), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, size)
buffer, at, begun = bytearray(1 << 20), 0, None
view = memoryview(buffer)
while at < size:
    count = connected.recv_into(buffer)
    begun = begun or time.perf_counter()
    os.pwrite(file, view[:count], at)
    at += count
print(size / (time.perf_counter() - begun) / 1e6)
"""
