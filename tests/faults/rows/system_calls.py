"""System calls that fail, or during which the process is killed, by strace's injection."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
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
ONCE = ProducerOptions(send_timeout_ms=1_500, retries=0)


def kill_in_save(home: Path, seed: int = 0, side: str = TWINLOG, calls: str = "all") -> str:
    """A process is killed at each system call of the save of a metadata file: the file is the old or the new one.

    Seen to fail with the file written in place instead of `replace_file`: an empty file after the kill at its write.
    """
    _need_strace()
    found = {"old": 0, "new": 0}
    trace = home / "trace"
    assert _save(_file_with_backup(home / "traced"), "3", trace, f"trace={calls}").returncode == 0
    made = Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))
    # strace counts each call by its name: the third of several names is the third of one of them.
    for call, number in [(call, number + 1) for call, count in made.items() for number in range(count)]:
        path, about = _file_with_backup(home / f"{call}-{number}"), f"killed at {call} {number}"
        killed = _save(path, "3", trace, f"inject={call}:signal=SIGKILL:when={number}")
        assert killed.returncode != 0, about
        data = path.read_bytes()
        assert check_json(data), f"{about}: {data!r}"
        value = json.loads(data)["a"]
        assert value in (2, 3), f"{about}: {data!r}"
        assert FileWithBackup(path).load(json.loads) is not None, about
        backup = json.loads(path.with_name("topics.json.bak").read_bytes())["a"]
        assert backup in (1, 2), f"{about}: {backup}"
        FileWithBackup(path, has_checksum=True).save([b'{"a":4}'])
        assert json.loads(path.read_bytes())["a"] == 4, about
        found["new" if value == 3 else "old"] += 1
    assert found["old"] and found["new"], found
    return f"{sum(found.values())} kills: {found['old']} times the old file, {found['new']} times the new one"


def _file_with_backup(directory: Path) -> Path:
    path = directory / "topics.json"
    for value in (b"1", b"2"):
        FileWithBackup(path, has_checksum=True).save([b'{"a":', value, b"}"])
    return path


def _save(path: Path, value: str, trace: Path, what: str) -> subprocess.CompletedProcess[bytes]:
    """Save in a process; strace looks at the calls that name one of the files, or use it."""
    names = [str(path), *(f"{path}.{end}" for end in ("tmp", "bak", "bak.tmp")), str(path.parent)]
    words = ["strace", "-f", "-qq", "-o", str(trace), *(word for name in names for word in ("-P", name)), "-e", what]
    return subprocess.run([*words, sys.executable, "-c", SAVE, str(path), value], capture_output=True, timeout=60)


def failed_fsync(home: Path, seed: int = 0, side: str = TWINLOG, rounds: int = 1) -> str:
    """One flush of the log fails: what it covered is never acknowledged, later sends are refused with the reason.

    After a restart everything that was acknowledged is there. Seen to fail when the next flush is trusted, with neither
    `_failed` of FlushService nor `_flush_failure` of the log set: it comes soon enough to acknowledge the send here.
    """
    _need_strace()
    makers = Twinlog()
    soon = {"flushIntervalCommitLog": "100", "flushCommitLogLeastPages": "0"}
    conf = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "1000", **soon}
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
