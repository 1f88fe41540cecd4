"""An archive in a bucket: the process that fills it is killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
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
    """`twinlog pipeline archive s3a://...`, killed with all its processes; the last run ends by itself."""
    for needed in ("pyspark", "moto"):
        pytest.importorskip(needed)
    from tests.spark.lake.s3_server import s3_server

    chance = random.Random(seed)
    with s3_server() as server, EmbeddedBroker(home / "broker") as broker:
        lake, sent = server.lake("archive"), 0
        with Admin(broker.namesrv_address) as admin, Producer(broker.namesrv_address, "soak") as producer:
            admin.create_topic("Orders", queues=3)
            for _ in range(rounds):
                sent = _send(producer, sent, 3000)
                seen = _batches if chance.random() < 0.7 else _records  # most runs have added something by then
                before = seen(lake)
                process = _archive(broker.namesrv_address, lake, server)
                _wait(lambda seen=seen, before=before: seen(lake) > before, process)
                time.sleep(chance.random() * 4)
                _kill_session(process)
            sent = _send(producer, sent, 100)
        process = _archive(broker.namesrv_address, lake, server)
        out, told = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0, told
        found = [number for file in _files(lake) for number in file]
        assert sorted(found) == list(range(sent)), f"seed {seed}: {len(found)} rows of {sent} messages"
        return f"{rounds} kills, {sent} messages once each; the last run added {json.loads(out)['rows']}"


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
    quick = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    words = ["archive", str(lake.root), "-n", name_server, "-t", "Orders", "--rows-per-batch", "500", "--json"]
    command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", *words, "--master", "local[2]", "--conf", quick]
    for name, value in server.conf.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _send(producer: Producer, start: int, count: int) -> int:
    for begin in range(start, start + count, 100):
        end = min(begin + 100, start + count)
        producer.send_batch([Outgoing("Orders", b"%d" % number) for number in range(begin, end)])
    return start + count


def _files(lake: S3Lake) -> list[list[int]]:
    from tests.spark.lake.archives import table

    names = [entry.name for entry in lake.list("topic=")]
    return [[int(body) for body in table(lake, name)["body"].to_pylist()] for name in names]


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


def _kill_session(process: subprocess.Popen) -> None:
    """All processes of the session at once: Python, the JVM, and Spark's workers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    process.communicate()
