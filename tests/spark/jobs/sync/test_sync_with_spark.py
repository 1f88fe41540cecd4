"""`twinlog pipeline sync` inside a real Spark: three masters, brokers on their replicas, and kill -9."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.interop.replica_pair import pull_everything
from tests.spark.jobs.sync.test_ticks import assert_same_log
from typer.testing import CliRunner

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.main import app
from twinlog.cli.pipeline import sync as sync_command
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.job import sync
from twinlog.spark.jobs.sync.replicas.replica_state import SyncFolder
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.tables.history import metadata_at
from twinlog.store.lock import is_locked

pytestmark = pytest.mark.timeout(300)
SETTINGS = {"mappedFileSizeCommitLog": str(256 * 1024)}


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """Three running brokers with 300 messages each: {name: (home, broker)}."""
    home, found = tmp_path_factory.mktemp("masters"), {}
    with contextlib.ExitStack() as stack:
        for name in ("broker-a", "broker-b", "broker-c"):
            broker = stack.enter_context(EmbeddedBroker(home / name, {**SETTINGS, "brokerName": name}))
            send(broker, range(300))
            found[name] = (home / name, broker)
        yield found


def send(broker, numbers, topic="Fleet"):
    with Producer(broker.namesrv_address, "PG") as producer:
        for number in numbers:
            producer.send(Outgoing(topic, b"%06d" % number + os.urandom(1500)))


def job_for(masters, to, **more):
    return SyncJob(to=str(to), addresses=tuple(one.broker_address for _, one in masters.values()), **more)


def rows_once(spark, to, table, *names):
    """The rows of a table by these columns; none of them is there twice."""
    rows = [tuple(row[name] for name in names) for row in spark.read.parquet(f"{to}/_history/{table}").collect()]
    assert len(rows) == len(set(rows))
    return rows


def test_three_masters_become_replicas_on_which_brokers_start_and_serve_everything(spark, masters, tmp_path):
    to, told = tmp_path / "to", []
    summary = sync(spark, job_for(masters, to, once=True), told.append)
    assert summary.failed == () and [one.broker for one in summary.brokers] == list(masters)
    assert all(one.lag_bytes == 0 and one.bytes_copied == one.log_end > 300 * 1500 for one in summary.brokers)
    assert told[-1].done == told[-1].total == summary.bytes_copied and "all in step" in told[-1].text
    before = datetime.now(UTC)

    for name, (home, _) in masters.items():
        assert_same_log(home / "store", to / name)
    for _, broker in masters.values():
        send(broker, range(300, 310), topic="Later")
    again = sync(spark, job_for(masters, to, once=True))
    assert again.failed == () and 0 < again.bytes_copied < 3 * 10 * 2000
    assert all(one.changes == 1 for one in again.brokers), "one new topic each"

    ranges = rows_once(spark, to, "ranges", "broker", "fromOffset", "toOffset", "sequence")
    for name, (home, _) in masters.items():
        assert_same_log(home / "store", to / name)
        mine = sorted(one for one in ranges if one[0] == name)
        assert [one[1] for one in mine] == [0, *(one[2] for one in mine[:-1])], "ranges join"
    changes = rows_once(spark, to, "changes", "broker", "kind", "key", "newValue")
    assert sum(one[1:3] == ("topics", "Later") for one in changes) == 3

    spark.read.parquet(f"{to}/_status/ticks").createOrReplaceTempView("ticks")
    ticks = spark.sql("select broker, max(lagBytes), max(lagSeconds), count(error) from ticks group by broker")
    assert sorted(map(tuple, ticks.collect())) == [(name, 0, 0.0, 0) for name in sorted(masters)]

    then = metadata_at(spark, to / "_history", before, kind="topics", broker="broker-b").collect()
    now = metadata_at(spark, to / "_history", datetime.now(UTC), kind="topics", broker="broker-b").collect()
    assert {row.key for row in now} - {row.key for row in then} == {"Later"}
    (fleet,) = [row for row in then if row.key == "Fleet"]
    assert json.loads(fleet.value)["topicName"] == "Fleet"
    assert fleet.version.counter >= 1

    for name in masters:
        (tmp_path / "started" / name).mkdir(parents=True)
        (to / name).rename(tmp_path / "started" / name / "store")
        with EmbeddedBroker(tmp_path / "started" / name, {**SETTINGS, "brokerName": name}) as broker:
            found = pull_everything(broker.broker_address, "Fleet", 8)
            found += pull_everything(broker.broker_address, "Later", 8)
            assert sorted(int(one.body[:6]) for one in found) == list(range(310))


def test_a_running_query_follows_its_masters_and_an_error_stays_with_its_broker(spark, masters, tmp_path):
    to, stop, told = tmp_path / "to", threading.Event(), []
    (to / "broker-c").parent.mkdir()
    (to / "broker-c").write_text("a file where the directory should be")
    found = {}

    def run():
        found["summary"] = sync(spark, job_for(masters, to, every_ms=500), told.append, stop=stop)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: told, thread)
        _, broker = masters["broker-a"]
        send(broker, range(1), topic="WhileRunning")
        until(lambda: "WhileRunning" in topics_in(to / "broker-a"), thread)
        until(lambda: len(told) > 3, thread)
    finally:
        stop.set()
        thread.join(60)
    summary = found["summary"]
    assert [one.broker for one in summary.failed] == ["broker-c"] and summary.failed[0].failures >= 2
    assert "broker-c" in summary.failed[0].error
    assert_same_log(masters["broker-a"][0] / "store", to / "broker-a")


def until(condition, thread, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.1)


def topics_in(replica):
    path = replica / "config" / "topics.json"
    return path.read_text() if path.exists() else ""


def test_the_command_ends_with_status_1_if_a_broker_failed(spark, masters, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def this_session(name, master, conf):
        yield spark, lambda progress: None

    monkeypatch.setattr(sync_command, "spark_job", this_session)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "broker-b").write_text("a file where the directory should be")
    words = ["pipeline", "sync", "--to", str(tmp_path), "--once", "--json"]
    for _, broker in masters.values():
        words += ["--address", broker.broker_address]
    failing = CliRunner().invoke(app, words)
    assert failing.exit_code == 1
    told = json.loads(failing.stdout)
    assert told["failed"] == ["broker-b"] and told["bytesCopied"] > 0
    (tmp_path / "broker-b").unlink()
    good = CliRunner().invoke(app, words)
    assert good.exit_code == 0 and json.loads(good.stdout)["failed"] == []


def test_a_broker_that_is_not_registered_is_named(spark, masters, tmp_path):
    _, broker = masters["broker-a"]
    cluster = ClusterOptions(name_servers=(broker.namesrv_address,))
    with pytest.raises(BadOption, match="no broker 'nobody' is registered there; registered are broker-a"):
        sync(spark, SyncJob(to=str(tmp_path), cluster=cluster, brokers=("nobody",), once=True))


def test_kill_9_of_the_command_in_the_middle_of_a_copy_loses_and_repeats_nothing(spark, tmp_path):
    """The master sends one megabyte a second until the kill, so that it comes in the middle of a copy."""
    slowly = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "1000000", "haTransferBatchSize": "100000"}
    settings = {**SETTINGS, **slowly, "brokerName": "broker-a", "mappedFileSizeCommitLog": str(4 << 20)}
    to = tmp_path / "to"
    with EmbeddedBroker(tmp_path / "master", settings) as broker:
        with Producer(broker.namesrv_address, "PG") as producer:
            for _ in range(20):
                producer.send(Outgoing("Big", os.urandom(1_000_000)))
            for number in range(100):
                producer.send(Outgoing("Small", b"%06d" % number))
        words = [
            "-n",
            broker.namesrv_address,
            "--to",
            str(to),
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
        ]
        command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", "sync", *words]
        with open(tmp_path / "output", "wb") as output:
            first = subprocess.Popen([*command, "--every", "2s"], stdout=output, stderr=output)
            try:
                wait_for(lambda: state_of(to / "broker-a").end > 0, first, tmp_path / "output")
            finally:
                os.kill(first.pid, signal.SIGKILL)
                first.wait()
        deadline = time.monotonic() + 60
        while is_locked(to / "broker-a"):  # Spark's workers notice a little later
            assert time.monotonic() < deadline
            time.sleep(0.05)
        end = state_of(to / "broker-a").end
        with Admin(broker.namesrv_address) as admin:
            admin.update_broker_config(broker.broker_address, {"haFlowControlEnable": "false"})
        job = SyncJob(to=str(to), cluster=ClusterOptions(name_servers=(broker.namesrv_address,)), once=True)
        (told,) = sync(spark, job).brokers
        assert 0 < end < told.log_end and (told.lag_bytes, told.error) == (0, ""), "the kill came in the middle"
        assert_same_log(tmp_path / "master" / "store", to / "broker-a")
        ranges = sorted(rows_once(spark, to, "ranges", "fromOffset", "toOffset", "records"))
        assert [one[0] for one in ranges] == [0, *(one[1] for one in ranges[:-1])]
        assert ranges[-1][1] == told.log_end and sum(one[2] for one in ranges) == 120
        changes = rows_once(spark, to, "changes", "kind", "key")
        assert {("topics", "Big"), ("topics", "Small")} <= set(changes)


def test_the_example_follows_a_broker(spark, masters, tmp_path, monkeypatch, capsys):
    path = Path(__file__).parents[4] / "examples" / "follow_a_broker.py"
    spec = importlib.util.spec_from_file_location("follow_a_broker", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "NAMES", masters["broker-a"][1].namesrv_address)
    monkeypatch.setattr(example, "start", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    example.follow(tmp_path)
    told = capsys.readouterr().out
    assert "broker-a: " in told and "0 behind, no error" in told
    assert re.search(r'before: .*"readQueueNums":4\b.*\nafter: .*"readQueueNums":8\b', told)


def state_of(replica: Path):
    return SyncFolder(replica).load()


def wait_for(condition, process, output: Path, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, output.read_text()[-3000:]
        time.sleep(0.05)
