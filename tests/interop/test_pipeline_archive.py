"""Archives of real Java brokers, made by runs that are killed, and restored into Java brokers; and those in tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.interop.clusters import Cluster, Clusters
from tests.interop.patient import WaitingAdmin, WaitingProducer, WaitingPullConsumer
from tests.interop.toolchain import maven_packages, pyspark_environment

from twinlog.client import Outgoing
from twinlog.spark.jobs.archive.layout import load_commit
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(1200)]
COUNT, BATCH = 2000, 100  # many batches, so that a run can be killed between them


@pytest.fixture(scope="module", params=["java-5.5.0", "java-4.9.7"])
def place(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return registered(clusters, request.param)


def registered(clusters: Clusters, name: str) -> Cluster:
    found = clusters.get(name, use="python-client")
    with WaitingAdmin(found.names.address) as admin:
        wait_for(lambda: admin.cluster_info().cluster_addr_table)
    return found


@pytest.fixture
def filled(place: Cluster) -> str:
    return fill(place)


def fill(place: Cluster) -> str:
    """A topic of two queues: single, batched and compressed messages."""
    topic = f"Archived_{uuid.uuid4().hex[:8]}"
    with WaitingAdmin(place.names.address) as admin:
        admin.create_topic(topic, queues=2)
    with WaitingProducer(place.names.address, "filler") as producer:
        wait_for(lambda: len(producer.queues(topic)) == 2)
        for begin in range(0, COUNT - 10, 100):
            numbers = range(begin, min(begin + 100, COUNT - 10))
            queue = MessageQueue(topic, "broker-a", begin // 100 % 2)
            producer.send_batch([Outgoing(topic, b"%d" % n, keys=f"k{n}") for n in numbers], queue=queue)
        for number in range(COUNT - 10, COUNT):
            long = b"%d " % number + b"x" * 10_000  # compressed on its way
            producer.send(Outgoing(topic, long, tags="long"), queue=MessageQueue(topic, "broker-a", number % 2))
    return topic


def wait_for(condition: Callable[[], object], seconds_max: float = 200) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def pipeline(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", *map(str, words), "--json", "--master", "local[2]"]
    # Short runs: compile little, and shuffle few rows into few parts.
    command += ["--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finished(run: subprocess.Popen[str]) -> dict:
    out, told = run.communicate(timeout=300)
    assert run.returncode == 0, told
    return json.loads(out)


def kill(run: subprocess.Popen[str]) -> None:
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()


def rows_of(root: Path) -> list[dict]:
    columns = ["topic", "brokerName", "queueId", "queueOffset", "body"]
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table(columns)
    return sorted(table.to_pylist(), key=lambda row: (row["queueId"], row["queueOffset"]))


def number_in(body: bytes) -> int:
    return int(body.split(b" ")[0])


def test_a_topic_of_a_java_broker_is_archived_once_and_restored_once_by_runs_that_are_killed(
    place: Cluster, filled: str, tmp_path: Path
):
    names, root = place.names.address, tmp_path / "archive"
    words = ("archive", root, "-n", names, "-t", filled, "--rows-per-batch", BATCH)
    run = pipeline(*words)
    wait_for(lambda: load_commit(root).batch >= 1 or run.poll() is not None)
    kill(run)
    assert load_commit(root).batch < COUNT // BATCH
    done = finished(pipeline(*words))
    assert 0 < done["rows"] < COUNT
    rows = rows_of(root)
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == len(rows) == COUNT
    assert sorted(number_in(row["body"]) for row in rows) == list(range(COUNT))

    group, target = f"g{uuid.uuid4().hex[:6]}", f"{filled}_back"
    with WaitingAdmin(names) as admin:
        admin.save_group(place.broker.address, SubscriptionGroupConfig(group_name=group))
    with WaitingPullConsumer(names, group, register=False) as consumer:
        consumer.commit(MessageQueue(filled, "broker-a", 0), 123)
        consumer.commit(MessageQueue(filled, "broker-a", 1), COUNT)  # all was consumed
    words = ("restore", "--archive", root, "-n", names, "-t", filled, "--rename", f"{filled}={target}", "--groups")
    words = (*words, group, "--group-offsets", names, "--map", tmp_path / "map")
    run = pipeline(*words, "--batch", 1)
    with WaitingAdmin(names) as admin:
        wait_for(lambda: stored(admin, target) >= 50 or run.poll() is not None)
    kill(run)
    done = finished(pipeline(*words))
    assert (done["map_rows"], done["copies"], done["sent"] + done["present"]) == (COUNT, 0, COUNT)
    assert done["present"] >= 50
    with WaitingPullConsumer(names, group, register=False) as consumer:
        for queue in (0, 1):
            there = MessageQueue(target, "broker-a", queue)
            got = [message.body for message in consumer.messages(there, 0, consumer.max_offset(there))]
            assert got == [row["body"] for row in rows if row["queueId"] == queue]
        assert consumer.committed(MessageQueue(target, "broker-a", 0)) == 123
        assert consumer.committed(MessageQueue(target, "broker-a", 1)) == len(got)


def test_tables_of_a_java_broker_are_compacted_restored_and_read_by_other_sparks(clusters: Clusters, tmp_path: Path):
    """Iceberg by Spark 4.1, which has a build of it; Delta by the Spark in use."""
    place = registered(clusters, "java-5.5.0")
    filled = fill(place)
    names, lake, delta = place.names.address, tmp_path / "iceberg", tmp_path / "delta"
    archive = ("-n", names, "-t", filled, "--parse", "json=n bigint", "--parse-into", "fields")
    words = ("archive", lake, *archive, "--format", "iceberg")
    killed_after(pipeline(*words, "--rows-per-batch", BATCH), lake / "metadata" / "v3.metadata.json")
    # The bodies are numbers, not objects: all of them are kept beside.
    done = finished(pipeline(*words))
    assert (done["rows"], 0 < done["unparsed"] < COUNT) == (0, True)
    bad = f"{lake}_unparsed"
    words = ("archive", delta, "-n", names, "-t", filled, "--format", "delta")
    killed_after(pipeline(*words, "--rows-per-batch", BATCH), delta / "_delta_log" / f"{2:020d}.json")
    assert 0 < finished(pipeline(*words))["rows"] < COUNT
    done = finished(pipeline("compact", bad, "--before", "2999-01-01"))
    assert done["files_before"] > done["files_after"] == 1
    target = f"{filled}_back"
    restore = ("restore", "--archive", bad, "-n", names, "-t", filled, "--rename", f"{filled}={target}")
    done = finished(pipeline(*restore, "--to-offset", 10, "--map", tmp_path / "map"))
    assert (done["sent"], done["copies"]) == (20, 0)
    wanted = {"rows": COUNT, "messages": COUNT}
    assert read_by_spark("iceberg", bad, pyspark_environment("4.1.4"), ICEBERG_BUILD) == wanted
    if f"spark_{'.'.join(pyspark.__version__.split('.')[:2])}_" in DELTA_BUILD:
        storage = DELTA_BUILD.replace("spark_4.2_2.13", "storage")
        assert read_by_spark("delta", str(delta), None, DELTA_BUILD, storage) == wanted


def killed_after(run: subprocess.Popen[str], commit: Path) -> None:
    """Kill a run, all its processes, when it has made this file."""
    wait_for(lambda: commit.exists() or run.poll() is not None)
    kill(run)
    assert commit.exists()


ICEBERG_BUILD = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
DELTA_BUILD = "io.delta:delta-spark_4.2_2.13:4.4.0"
READ = """
import json, sys
from twinlog.spark.session import prepare_environment
prepare_environment("local[2]")
from pyspark.sql import SparkSession
kind, place, jars = sys.argv[1:]
conf = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1", "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
if kind == "delta":
    conf["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
    conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
found = spark.read.format(kind).load(place).selectExpr(
    "count(*) as rows", "count(distinct queueId, queueOffset) as messages").first()
print("\\n" + json.dumps(found.asDict()))
"""


def read_by_spark(kind: str, place: str, environment: Path | None, *builds: str) -> dict:
    """What a session with the format's own build reads; `environment` is a folder with another Spark."""
    jars = ",".join(map(str, maven_packages(*builds)))
    more = {} if environment is None else {"SPARK_HOME": str(environment / "pyspark")}
    paths = [str(environment)] if environment else []
    path = os.pathsep.join((*paths, os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", READ, kind, place, jars],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **more, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def stored(admin, topic: str) -> int:
    try:
        return sum(offset.max_offset for offset in admin.topic_stats(topic).values())
    except Exception:  # the topic is not there yet, or only half of it
        return 0
