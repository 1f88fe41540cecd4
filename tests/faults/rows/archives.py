"""An archive in a bucket: the process that fills it is killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer

if TYPE_CHECKING:  # the table of rows is read without Spark, too
    from tests.spark.lake.s3_server import S3Server

    from twinlog.spark.lake.s3_lake import S3Lake

_LIMIT_S = 300


def kill_archive(home: Path, seed: int, side: str, rounds: int = 20) -> str:
    """`twinlog pipeline archive s3a://...`, killed with all its processes; the last run ends by itself.

    Each fifth one is `compact`. A run that ended before its kill is not counted.
    """
    for needed in ("pyspark", "moto"):
        pytest.importorskip(needed)
    from tests.spark.lake.s3_server import s3_server

    chance = random.Random(seed)
    with s3_server() as server, EmbeddedBroker(home / "broker") as broker:
        lake, sent, kills = server.lake("archive"), 0, 0
        with Admin(broker.namesrv_address) as admin, Producer(broker.namesrv_address, "soak") as producer:
            admin.create_topic("Orders", queues=3)
            for number in range(3 * rounds):
                sent = _send(producer, sent, 3000)
                compacts = number % 5 == 4
                # Most runs have added something by then.
                seen = _records if compacts or chance.random() > 0.7 else _batches
                before = seen(lake)
                process = _compact(lake, server) if compacts else _archive(broker.namesrv_address, lake, server)
                _wait(lambda seen=seen, before=before: seen(lake) > before, process)
                time.sleep(chance.random() * 2)
                kills += _kill_session(process)
                found = _bodies(lake, _live(lake))
                assert len(found) == len(set(found)), f"seed {seed}: messages twice after {kills} kills"
                if kills == rounds:
                    break
            sent = _send(producer, sent, 100)
        assert kills == rounds, f"seed {seed}: {kills} of {number + 1} runs were still at work when they were killed"
        process = _archive(broker.namesrv_address, lake, server)
        out, told = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0, told
        for names in (_live(lake), [entry.name for entry in lake.list("topic=")]):
            found = _bodies(lake, names)
            assert sorted(found) == list(range(sent)), f"seed {seed}: {len(found)} rows of {sent} messages"
        return f"{kills} kills, {sent} messages once each; the last run added {json.loads(out)['rows']}"


def kill_filling(server: S3Server, seed: int, rounds: int, each_s: float = 1.0) -> str:
    """The same without Spark, and with compaction in every third round."""
    from tests.spark.lake.archives import live, plain, run

    from twinlog.spark.jobs.archive.lakes.chain import load_state

    chance, lake = random.Random(seed), server.lake("archive")
    run(lake, 7, per_batch=7)
    for number in range(rounds):
        what, before = "compact" if number % 3 == 2 else "fill", _records(lake)
        command = [sys.executable, "-m", "tests.spark.lake.filling", what, str(lake.root)]
        process = subprocess.Popen(
            [*command, json.dumps(server.settings), "1000000"], stderr=subprocess.DEVNULL, start_new_session=True
        )
        _wait(lambda before=before: _records(lake) > before, process)  # it has begun
        time.sleep(chance.random() * each_s)
        _kill_session(process)
    (position,) = (load_state(lake).position or {}).values()
    end = position + 20
    run(lake, end)
    assert live(lake) == plain(lake) == list(range(end)), f"seed {seed}"
    return f"{rounds} kills, {end} rows once each"


def _archive(name_server: str, lake: S3Lake, server: S3Server) -> subprocess.Popen[str]:
    words = ("-n", name_server, "-t", "Orders", "--rows-per-batch", "500", "--json")
    return _pipeline(server, "archive", str(lake.root), *words)


def _compact(lake: S3Lake, server: S3Server) -> subprocess.Popen[str]:
    return _pipeline(server, "compact", str(lake.root), "--before", "2999-01-01")


def _pipeline(server: S3Server, *words: str) -> subprocess.Popen[str]:
    quick = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", *words, "--master", "local[2]", "--conf", quick]
    for name, value in server.conf.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _send(producer: Producer, start: int, count: int) -> int:
    for begin in range(start, start + count, 100):
        end = min(begin + 100, start + count)
        producer.send_batch([Outgoing("Orders", b"%d" % number) for number in range(begin, end)])
    return start + count


def _bodies(lake: S3Lake, names: Iterable[str]) -> list[int]:
    from tests.spark.lake.archives import table

    return [int(body) for name in names for body in table(lake, name)["body"].to_pylist()]


def _live(lake: S3Lake) -> list[str]:
    """The files that our reader takes."""
    from twinlog.spark.jobs.archive.lakes.live_files import live_files

    return [file.path for files in live_files(lake)[1].values() for file in files]


def _records(lake: S3Lake) -> int:
    from twinlog.spark.jobs.archive.lakes.chain import load_state

    return load_state(lake).number


def _batches(lake: S3Lake) -> int:
    from twinlog.spark.jobs.archive.lakes.chain import load_state

    return load_state(lake).batch


def _wait(condition, process: subprocess.Popen) -> None:
    limit = time.monotonic() + _LIMIT_S
    while not condition() and process.poll() is None:
        assert time.monotonic() < limit, "no batch came"
        time.sleep(0.05)


def _kill_session(process: subprocess.Popen) -> bool:
    """All processes of the session at once: Python, the JVM, and Spark's workers. False if it had ended well."""
    is_alive = process.poll() is None
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    _, told = process.communicate()
    assert is_alive or process.returncode == 0, told
    return is_alive
