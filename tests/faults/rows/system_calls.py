"""System calls that fail, or during which the process is killed, by strace's injection."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.group import TWINLOG
from tests.interop.replica_pair import pull_everything, until
from tests.interop.twinlog_servers import Twinlog

from twinlog.base.json_checksum import check_json
from twinlog.client import ClientError, NetError, Outgoing, ProducerOptions, SendStatus, sync
from twinlog.metadata.file_with_backup import FileWithBackup

SAVE = """
import sys
from twinlog.metadata.file_with_backup import FileWithBackup
FileWithBackup(sys.argv[1], has_checksum=True).save([b'{"a":', sys.argv[2].encode(), b"}"])
"""
CALLS = "openat,write,fsync,fchmod,close,link,rename,unlink"
CALLS_MAX = 100
ONCE = ProducerOptions(send_timeout_ms=1_500, retries=0)


def kill_in_save(home: Path, seed: int = 0, side: str = TWINLOG, calls: str = "all") -> str:
    """A process is killed at each system call of the save of a metadata file: the file is the old or the new one.

    Seen to fail with the file written in place instead of `replace_file`: an empty file after the kill at its write.
    """
    _need_strace()
    found = {"old": 0, "new": 0}
    for number in range(1, CALLS_MAX):
        path = home / str(number) / "topics.json"
        for value in ("1", "2"):
            assert _save(path, value).returncode == 0
        names = [str(path), *(f"{path}.{end}" for end in ("tmp", "bak", "bak.tmp")), str(path.parent)]
        filters = [word for name in names for word in ("-P", name)]
        words = [*filters, "-e", f"inject={calls}:signal=SIGKILL:when={number}"]
        killed = _save(path, "3", "strace", "-f", "-qq", "-o", "/dev/null", *words)
        data = path.read_bytes()
        assert check_json(data), f"killed at call {number}: {data!r}"
        value = json.loads(data)["a"]
        assert value in (2, 3), f"killed at call {number}: {data!r}"
        assert FileWithBackup(path).load(json.loads) is not None, f"killed at call {number}"
        backup = json.loads(path.with_name("topics.json.bak").read_bytes())["a"]
        assert backup in (1, 2), f"killed at call {number}: {backup}"
        assert _save(path, "4").returncode == 0 and json.loads(path.read_bytes())["a"] == 4
        found["new" if value == 3 else "old"] += 1
        if killed.returncode == 0:
            return f"{number - 1} kills: {found['old']} times the old file, {found['new'] - 1} times the new one"
    raise AssertionError(f"more than {CALLS_MAX} system calls")


def _save(path: Path, value: str, *before: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*before, sys.executable, "-c", SAVE, str(path), value], capture_output=True, timeout=60)


def failed_fsync(home: Path, seed: int = 0, side: str = TWINLOG, rounds: int = 1) -> str:
    """One flush of the log fails: what it covered is never acknowledged, later sends are refused with the reason.

    After a restart everything that was acknowledged is there. Seen to fail with `_failed` not set in FlushService and
    the next flush trusted.
    """
    _need_strace()
    makers = Twinlog()
    conf = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "300"}
    with makers.name_server(home / "names") as names:
        for number in range(rounds):
            place = home / str(number)
            broker = makers.broker(place, names.address, **conf)
            with broker, sync.Producer(names.address, "PG", producer_options=ONCE) as producer:
                good = [producer.send(Outgoing("FsyncTopic", b"good %d" % n)) for n in range(5)]
                assert all(one.status is SendStatus.OK for one in good)
                with _failing_flush(broker.pid):
                    answers = [_try(producer, b"bad %d" % n) for n in range(2)]
                assert "OK" not in answers, answers
                reason = _try(producer, b"after")
                assert "flush" in reason and "restart" in reason, reason
                port = broker.port
                broker.kill()
                with makers.broker(place, names.address, port=port, **conf) as again:
                    bodies = {one.body for one in pull_everything(again.address, "FsyncTopic", 8)}
                    assert {b"good %d" % n for n in range(5)} <= bodies, bodies
                    assert producer.send(Outgoing("FsyncTopic", b"more")).status is SendStatus.OK
    return f"{rounds} failed flushes, {answers[0]}; then: {reason[:90]}"


def _try(producer: sync.Producer, body: bytes) -> str:
    try:
        return producer.send(Outgoing("FsyncTopic", body)).status.name
    except (ClientError, NetError) as error:
        return str(error)


@contextlib.contextmanager
def _failing_flush(pid: int) -> Iterator[None]:
    """The next fdatasync of the process fails with EIO, once."""
    inject = "inject=fdatasync:error=EIO:when=1"
    tracer = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(pid), "-e", inject], stderr=subprocess.PIPE)
    try:
        until(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "strace is attached", 20)
        time.sleep(0.2)  # its other threads
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def _need_strace() -> None:
    command = ["strace", "-o", "/dev/null", "true"]
    if shutil.which("strace") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("strace is not installed, or may not trace")
