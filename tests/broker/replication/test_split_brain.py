"""A master whose process was stopped while its replica was promoted: resumed, it acknowledges nothing.

Seen to fail when `MasterGuard.is_valid` always holds: the old master then acknowledges what waits in its sockets.
"""

import json
import os
import signal
import socket
import subprocess
import time

import pytest
from tests.interop.twinlog_servers import TWINLOG, Twinlog

from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.frame import take_frame
from twinlog.wire.twinlog_codes import TwinlogCode

STOPPED_S = 4  # longer than the guard's limit


def connect(broker):
    host, port = broker.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def send_frames(count):
    values = ["PG", "T", "TBW102", "4", "0", "0", "1", "0", "", "0", "false"]
    fields = dict(zip("abcdefghijk", values, strict=True))
    return b"".join(encode_command(Command(310, number, fields=fields, body=b"x")) for number in range(count))


def answers(connected, count):
    buffer, found = bytearray(), []
    while len(found) < count:
        data = connected.recv(65536)
        assert data, f"{len(found)} of {count} answers, then the broker closed the connection"
        buffer += data
        while (frame := take_frame(buffer)) is not None:
            found.append(decode_command(frame).code)
    return found


def run(*arguments):
    done = subprocess.run([*TWINLOG, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_resumed_old_master_acknowledges_nothing_and_becomes_a_replica(tmp_path, flush):
    twinlog = Twinlog()
    shared = {"brokerName": "pair", "flushDiskType": flush}
    with (
        twinlog.name_server(tmp_path / "names") as names,
        twinlog.broker(tmp_path / "one", names.address, **shared) as one,
        twinlog.broker(tmp_path / "two", names.address, brokerRole="SLAVE", brokerId="1", **shared) as two,
        connect(one) as producer,
    ):
        producer.sendall(send_frames(100))
        assert answers(producer, 100) == [0] * 100
        until(lambda: status_of(two)["logEnd"] == status_of(one)["logEnd"], "the replica has all of it")
        os.kill(one.pid, signal.SIGSTOP)
        producer.sendall(send_frames(500))  # they wait in the socket of the stopped process
        time.sleep(STOPPED_S)
        run("replication", "change-role", "-b", two.address, "--role", "ASYNC_MASTER", "-n", names.address)
        with connect(two) as newer:
            newer.sendall(send_frames(50))
            assert answers(newer, 50) == [0] * 50
        os.kill(one.pid, signal.SIGCONT)
        assert 0 not in answers(producer, 500), "acknowledged by a master that was replaced"
        until(lambda: status_of(one).get("following", {}).get("state") == "following", "it follows the new master")
        assert status_of(one)["epoch"] == status_of(two)["epoch"] == 1


def status_of(broker):
    with connect(broker) as connected:
        connected.sendall(encode_command(Command(TwinlogCode.REPLICATION_STATUS, 1)))
        buffer = bytearray()
        while (frame := take_frame(buffer)) is None:
            buffer += connected.recv(65536)
    return json.loads(frame.body)


def until(condition, what):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.2)
