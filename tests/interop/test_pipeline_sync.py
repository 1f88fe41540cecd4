"""`twinlog pipeline sync` from Java masters: their whole log, and brokers of both kinds on the copies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import WaitingProducer, WaitingPullConsumer
from tests.interop.replica_pair import (
    FILES_OF_49,
    SEGMENT,
    log_end,
    pull_everything,
    same_config,
    same_logs,
    segments,
    typed_config,
    until,
)
from tests.interop.toolchain import VERSIONS
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import Outgoing
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.sync_plan import BrokerTarget, Keep
from twinlog.spark.jobs.sync.task import run_group
from twinlog.spark.jobs.sync.tick_work import TickWork

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(900)]
CONF = {"mappedFileSizeCommitLog": str(SEGMENT), "slaveReadEnable": "true"}


def sync(names: str, to: Path) -> dict:
    """`twinlog pipeline sync --once` as an operator runs it; what it says of the one broker."""
    words = ["-n", names, "--to", str(to), "--once", "--json", "--master", "local[2]"]
    words += ["--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]  # compile little
    command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", "sync", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (broker,) = json.loads(done.stdout)["brokers"]
    return broker


def send(names: str, count: int, mark: str) -> list[str]:
    with WaitingProducer(names, "PG_SYNC") as producer:
        return [
            producer.send(
                Outgoing("SyncTopic", b"%s-%d " % (mark.encode(), n) + b"x" * 1000, keys=[f"k{n}"])
            ).message_id
            for n in range(count)
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_master_is_copied_from_its_first_byte_and_both_kinds_of_broker_serve_the_copy(version, tmp_path):
    java, to = JavaRocketmq(version), tmp_path / "to"
    with (
        Twinlog().name_server(tmp_path / "names") as names,
        java.broker(tmp_path / "master", names.address, **CONF) as master,
    ):
        sent = send(names.address, 2500, "first")
        with WaitingProducer(names.address, "PG_SYNC") as producer:
            producer.send(Outgoing("DelayTopic", b"late", delay_level=1))
        with WaitingPullConsumer(names.address, "CG_SYNC") as consumer:
            for queue in consumer.queues("SyncTopic"):
                consumer.commit(queue, consumer.pull(queue, 0).next_offset)
        told = sync(names.address, to)
        assert told["error"] == "" and told["lag_bytes"] == 0 and told["bytes_copied"] > 2 * SEGMENT
        assert segments(to / "broker-a")[0].name == "0" * 20, "from the beginning, not the last file only"

        sent += send(names.address, 300, "second")
        again = sync(names.address, to)
        assert again["error"] == "" and 300 * 1000 < again["bytes_copied"] < 600 * 1000
        master.stop()  # so that its own files are written
        assert same_logs_up_to_replica(master.store, to / "broker-a")
        for name in FILES_OF_49:
            keeps = version.startswith("5") or name in ("topics.json", "subscriptionGroup.json")
            assert_config_followed(master.store, to / "broker-a", name, versions=keeps)

    for kind, maker, conf in (
        ("java", java, {"brokerRole": "ASYNC_MASTER"}),
        ("twinlog-master", Twinlog(), {"brokerRole": "ASYNC_MASTER"}),
        ("twinlog-slave", Twinlog(), {"brokerRole": "SLAVE", "brokerId": "1"}),
    ):
        shutil.copytree(to / "broker-a", tmp_path / kind / "store")
        with (
            Twinlog().name_server(tmp_path / f"names-{kind}") as names,
            maker.broker(tmp_path / kind, names.address, **CONF, **conf) as broker,
        ):
            until(lambda at=broker.address: len(pull_everything(at, "SyncTopic", 8)) >= len(sent), f"{kind} serves")
            found = {one.message_id for one in pull_everything(broker.address, "SyncTopic", 8)}
            assert set(sent) <= found, f"{len(set(sent) - found)} messages are missing at {kind}"


def test_both_kinds_of_broker_start_on_a_copy_that_was_shortened_and_know_every_queue(tmp_path):
    java, to = JavaRocketmq(max(VERSIONS)), tmp_path / "to"  # 4.9 does not correct a queue without messages
    with (
        Twinlog().name_server(tmp_path / "names") as names,
        java.broker(tmp_path / "master", names.address, **CONF) as master,
    ):
        with WaitingProducer(names.address, "PG_SYNC") as producer:
            for number in range(40):  # all of them in the first segment
                producer.send(Outgoing("OldTopic", b"%d" % number))
        send(names.address, 3000, "first")
        work = TickWork(
            to=str(to),
            cluster=ClusterOptions(name_servers=()),
            groups=[[BrokerTarget("broker-a", master.address)]],
            keep=Keep(bytes=SEGMENT),
        )
        (report,) = run_group(work, 0)
    assert report.error == "" and report.start == report.dropped >= SEGMENT
    answers = {}
    for kind, maker in (("java", java), ("twinlog", Twinlog())):
        shutil.copytree(to / "broker-a", tmp_path / kind / "store")
        with (
            Twinlog().name_server(tmp_path / f"names-{kind}") as names,
            maker.broker(tmp_path / kind, names.address, **CONF),
        ):
            answers[kind] = served(names.address)
    assert answers["java"] == answers["twinlog"]
    ends, count = answers["java"]
    assert all(low == high for (topic, _), (low, high) in ends.items() if topic == "OldTopic")
    assert sum(high for (topic, _), (_, high) in ends.items() if topic == "OldTopic") == 40
    assert count == sum(high - low for low, high in ends.values()) > 500


def served(names: str) -> tuple[dict[tuple[str, int], tuple[int, int]], int]:
    """The first and last offset of every queue, and how many messages can be pulled from there on."""
    with WaitingPullConsumer(names, "CG_SHORT") as consumer:
        queues = [one for topic in ("OldTopic", "SyncTopic") for one in consumer.queues(topic)]
        ends = {(one.topic, one.queue_id): (consumer.min_offset(one), consumer.max_offset(one)) for one in queues}
        found = [len(list(consumer.messages(one, *ends[one.topic, one.queue_id]))) for one in queues]
    return ends, sum(found)


def same_logs_up_to_replica(master: Path, replica: Path) -> bool:
    """Whether the replica's bytes are the master's; that one may have written more while it stopped."""
    end, theirs = log_end(replica), {path.name: path.read_bytes() for path in segments(master)}
    if end == log_end(master):
        return same_logs(master, replica)
    for path in segments(replica):
        size = min(SEGMENT, end - int(path.name))
        if size > 0 and path.read_bytes()[:size] != theirs[path.name][:size]:
            return False
    return end > 0


def assert_config_followed(master: Path, replica: Path, name: str, *, versions: bool) -> None:
    said = f"{name}: {typed_config(master, name)} {typed_config(replica, name)}"[:3000]
    assert same_config(master, replica, name, versions=versions), said
