"""Spark Connect: the program has no JVM, only a connection to a server that finds the sources by itself.

One server for all of it: its start takes longer than most of what is asked of it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.spark.topics import numbers

from twinlog.spark.jobs.sync_status import status_of
from twinlog.store.offline.compare import compare_logs
from twinlog.store.offline.store_files import StoreFiles

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.usefixtures("connect_port")]

PROGRAM = """
import json, sys
from twinlog.spark.session import prepare_environment
prepare_environment("local[2]")
from pyspark.sql import SparkSession

name_server, topic, copy, folder = sys.argv[1:]
few = {"spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.remote("local[2]").config(map=few).getOrCreate()  # and nothing is registered
assert type(spark).__module__ == "pyspark.sql.connect.session"
options = {"nameServer": name_server, "topic": topic}
table = spark.read.format("rocketmq").options(**options).load()
by_queue = {row.queueId: row["count"] for row in table.groupBy("queueId").count().collect()}

stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=25)
writer = stream.load().select("body").writeStream.format("parquet").option("path", f"{folder}/out")
query = writer.option("checkpointLocation", f"{folder}/check").trigger(availableNow=True).start()
assert query.awaitTermination(120)
rows = [progress.numInputRows for progress in query.recentProgress]

told = {"queues": by_queue, "rows": rows}

late = table.where("queueId = 1").selectExpr("body", "'again' tags")
late.write.format("rocketmq").options(nameServer=name_server, topic=copy).mode("append").save()

from twinlog.spark.jobs.archive.compact import CompactJob, compact
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.restore.job import RestoreJob, restore
target, seen = f"{folder}/archive", []
done = archive(spark, ArchiveJob(target=target, name_server=name_server, topics=(topic,), rows_max=30), seen.append)
told["archived"] = [done.batches, seen[-1].done, read_archive(spark, target).count()]
told["files"] = compact(spark, CompactJob(target=target, before="2999-01-01")).files_after
job = RestoreJob(archive=target, name_server=name_server, topics=(topic,), renames={topic: f"{topic}Back"},
                 map_path=f"{folder}/map")
restored = restore(spark, job)

from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.job import sync
from twinlog.spark.jobs.sync.sync_plan import SyncJob
job = SyncJob(to=f"{folder}/replicas", cluster=ClusterOptions(name_servers=(name_server,)), once=True)
copied = [[one.broker, one.lag_bytes, one.error] for one in sync(spark, job).brokers]
print("\\n" + json.dumps({**told, "copied": copied, "restored": [restored.sent, restored.map_rows]}))
spark.stop()
"""


def test_a_connect_client_reads_streams_writes_and_runs_all_jobs_without_registering_anything(
    make_topic, broker, tmp_path
):
    pytest.importorskip("grpc", reason="pip install 'twinlog[connect]'")
    topic, copy = make_topic(), make_topic()
    topic.send_numbers(40, queue=0)
    topic.send_numbers(20, queue=1, start=40)
    command = [sys.executable, "-c", PROGRAM, topic.name_server, topic.name, copy.name, str(tmp_path)]
    # Another directory than this: nothing may depend on a relative path. The options are for a quick start.
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["queues"] == {"0": 40, "1": 20}
    assert sum(told["rows"]) == 60
    assert max(told["rows"]) <= 25
    files = [pq.ParquetFile(file).read() for file in (tmp_path / "out").glob("*.parquet")]
    assert sorted((row["body"].decode() for file in files for row in file.to_pylist()), key=int) == numbers(60)
    assert sorted(copy.read(), key=int) == numbers(20, 40)
    assert len(copy.read(subExpression="again")) == 20
    ((name, lag, error),) = told["copied"]
    assert (lag, error) == (0, "")
    assert status_of(tmp_path / "replicas").brokers[0].replica_end > 0
    with StoreFiles(Path(broker._temporary.name, "store")) as ours, StoreFiles(tmp_path / "replicas" / name) as theirs:
        assert compare_logs(ours.commit_log, theirs.commit_log).is_equal
    assert (told["archived"], told["files"], told["restored"]) == ([2, 60, 60], 1, [60, 60])
    rows = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table(["body"])
    assert sorted(int(body.as_py()) for body in rows["body"]) == list(range(60))
