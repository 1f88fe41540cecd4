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
from tests.faults.load import make_topic
from tests.interop.java_rocketmq import Broker, JavaRocketmq
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
JAVA_FLUSHES = "msync,fdatasync,fsync", "1+"  # all: the first could be that of another file
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


def kill_in_role_change(home: Path, seed: int = 0, side: str = TWINLOG, step: int = 1) -> str:
    """A broker is killed at each system call by which a change of its role changes a file, in both directions.

    Its configuration and its epochs are the old or the new ones. It starts with them, has all messages, and takes the
    new role when it is asked again. `step` leaves calls out. Seen to fail with a `replace_file` that writes in place:
    after the kill at the first write the file of epochs is empty, and the broker does not start.
    """
    _need_strace()
    found: Counter[str] = Counter()
    with Twinlog().name_server(home / "names") as names:
        for new, old in (("ASYNC_MASTER", "SLAVE"), ("SLAVE", "ASYNC_MASTER")):
            with _broker_to_kill(home / f"{new}-traced", names.address, old) as traced:
                with _strace(traced, f"trace={CALLS}") as trace:
                    _change_role(names.address, traced.address, new)
                made = Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))
            calls = [(call, number + 1) for call, count in made.items() for number in range(count)]
            for call, number in calls[::step]:
                about = f"killed at {call} {number} on the way to {new}"
                broker = _broker_to_kill(home / f"{new}-{call}-{number}", names.address, old)
                with _strace(broker, f"inject={call}:signal=SIGKILL:when={number}"):
                    try:
                        _change_role(names.address, broker.address, new)
                    except (ClientError, NetError):
                        until(lambda broker=broker: broker.has_ended, about, 30)
                late = "" if broker.has_ended else "afterwards, "  # other saves may use a file as well: a call less
                broker.kill()
                found[f"{late}{_start_again(broker, names.address, new, about)} on the way to {new}"] += 1
    assert step > 1 or {what.split()[0] for what in found} >= {"old", "new"}, found
    seen = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
    return f"{sum(found.values())} kills; role in the file: {seen}"


def _broker_to_kill(home: Path, names: str, role: str) -> Broker:
    """One with messages; it is master first, as a replica could not get any."""
    conf = {"brokerRole": "ASYNC_MASTER", "brokerId": "0", "brokerName": home.name, "slaveReadEnable": "true"}
    broker = Twinlog().broker(home, names, **conf)
    make_topic(names, broker.address, topic=_topic(home))
    with sync.Producer(names, "PG", producer_options=ONCE) as producer:
        for number in range(5):
            producer.send(Outgoing(_topic(home), b"%d" % number))
    if role == "SLAVE":
        _change_role(names, broker.address, role)
    return broker


def _topic(home: Path) -> str:
    return f"Of-{home.name}"  # each broker has its own, so that sends find it


def _start_again(broker: Broker, names: str, new: str, about: str) -> str:
    """What the files of a killed broker say: "old" or "new"."""
    conf = dict(line.split("=", 1) for line in (broker.home / "broker.conf").read_text().splitlines())
    assert conf.keys() >= broker.conf.keys(), f"{about}: {broker.conf.keys() - conf.keys()} are not in its file"
    assert conf["brokerRole"] in ("SLAVE", "ASYNC_MASTER"), f"{about}: {conf['brokerRole']}"
    assert (conf["brokerRole"] == "SLAVE") == (conf["brokerId"] != "0"), f"{about}: {conf['brokerId']}"
    with Twinlog().broker(broker.home, names, **conf) as again:
        bodies = {one.body for one in pull_everything(again.address, _topic(broker.home), 8)}
        assert bodies == {b"%d" % number for number in range(5)}, f"{about}: {bodies}"
        if conf["brokerRole"] != new:
            _change_role(names, again.address, new)
        if new != "SLAVE":
            with sync.Producer(names, "PG", producer_options=ONCE) as producer:
                assert producer.send(Outgoing(_topic(broker.home), b"more")).status is SendStatus.OK, about
    return "new" if conf["brokerRole"] == new else "old"


def _change_role(names: str, address: str, role: str) -> None:
    with sync.Admin(names) as admin:
        admin.change_role(address, role, None if role != "SLAVE" else 1, force=True)


@contextlib.contextmanager
def _strace(broker: Broker, what: str) -> Iterator[Path]:
    """Look at the calls of a running broker that name, or use, the files that a change of role changes."""
    trace = broker.home / "trace"
    files = [broker.home / "broker.conf", broker.store / "config" / "twinlogEpoch"]
    names = [name for one in files for name in (one, f"{one}.tmp", one.parent)]
    words = ["strace", "-f", "-qq", "-o", str(trace), *(word for name in names for word in ("-P", str(name)))]
    tracer = subprocess.Popen([*words, "-e", what, "-p", str(broker.pid)], stderr=subprocess.PIPE)
    try:
        _wait_attached(broker.pid)
        yield trace
    finally:
        tracer.terminate()
        tracer.wait()


def failed_fsync(home: Path, seed: int = 0, side: str = TWINLOG, rounds: int = 1) -> str:
    """One flush of the log fails: what it covered is never acknowledged, later sends are refused with the reason.

    After a restart everything that was acknowledged is there. Seen to fail when the next flush is trusted, with neither
    `_failed` of FlushService nor `_flush_failure` of the log set: it comes soon enough to acknowledge the send here.
    """
    _need_strace()
    makers = Twinlog() if side == TWINLOG else JavaRocketmq("5.5.0")
    soon = {"flushIntervalCommitLog": "100", "flushCommitLogLeastPages": "0"}
    conf = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "1000", **soon}
    with makers.name_server(home / "names") as names:
        for number in range(rounds):
            place = home / str(number)
            broker = makers.broker(place, names.address, **conf)
            with broker, sync.Producer(names.address, "PG", producer_options=ONCE) as producer:
                good = [producer.send(Outgoing("FsyncTopic", b"good %d" % n)) for n in range(5)]
                assert all(one.status is SendStatus.OK for one in good)
                with _failing_flush(broker.pid, *(("fdatasync", "1") if side == TWINLOG else JAVA_FLUSHES)):
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
def _failing_flush(pid: int, calls: str, which: str) -> Iterator[None]:
    """Of these calls of the process, those with these numbers fail with EIO."""
    inject = f"inject={calls}:error=EIO:when={which}"
    tracer = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(pid), "-e", inject], stderr=subprocess.PIPE)
    try:
        _wait_attached(pid)
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def _wait_attached(pid: int) -> None:
    until(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "strace is attached", 20)
    time.sleep(0.2)  # its other threads


def _need_strace() -> None:
    command = ["strace", "-o", "/dev/null", "true"]
    if shutil.which("strace") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("strace is not installed, or may not trace")
