"""The jobs through Spark Connect: the program has no JVM and no context, only a connection to a server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.usefixtures("connect_port")]

PROGRAM = """
import json, sys
from twinlog.spark.session import prepare_environment, register
prepare_environment("local[2]")
from pyspark.sql import SparkSession
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.compact import CompactJob, compact
from twinlog.spark.jobs.restore.job import RestoreJob, restore

name_server, topic, folder = sys.argv[1:]
spark = register(SparkSession.builder.remote("local[2]").getOrCreate())
assert type(spark).__module__ == "pyspark.sql.connect.session"
target, seen = f"{folder}/archive", []
done = archive(spark, ArchiveJob(target=target, name_server=name_server, topics=(topic,), rows_max=30), seen.append)
table = read_archive(spark, target).count()
compacted = compact(spark, CompactJob(target=target, before="2999-01-01"))
job = RestoreJob(archive=target, name_server=name_server, topics=(topic,), renames={topic: f"{topic}Back"},
                 map_path=f"{folder}/map")
restored = restore(spark, job)
told = {"batches": done.batches, "table": table, "files": compacted.files_after, "sent": restored.sent}
print("\\n" + json.dumps({**told, "map": restored.map_rows, "progress": seen[-1].done}))
spark.stop()
"""


def test_archive_compact_and_restore_work_through_spark_connect(make_topic, tmp_path):
    pytest.importorskip("grpc", reason="pip install 'twinlog[connect]'")
    topic = make_topic()
    topic.send_numbers(40, queue=0)
    topic.send_numbers(20, queue=1, start=40)
    command = [sys.executable, "-c", PROGRAM, topic.name_server, topic.name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told == {"batches": 2, "table": 60, "files": 1, "sent": 60, "map": 60, "progress": 60}
    rows = ds.dataset(Path(tmp_path) / "archive", format="parquet", partitioning="hive").to_table(["body"])
    assert sorted(int(body.as_py()) for body in rows["body"]) == list(range(60))
