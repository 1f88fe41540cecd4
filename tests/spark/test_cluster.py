"""A real standalone cluster, a master and two workers of one core each, on this machine."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest
from tests.interop.processes import free_port
from tests.spark.jobs.commands import run as run_command
from tests.spark.test_with_spark import wait_for

from twinlog.spark.session import find_java

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # short runs: compile little
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both workers are there before the first task
}

READ_AND_ARCHIVE = """
import json, os, sys
from twinlog.spark.jobs.archive.job import ArchiveJob, archive
from twinlog.spark.session import start
name_server, topic, target, master, conf = sys.argv[1:]
spark = start("first", master=master, conf=json.loads(conf))
frame = spark.read.format("rocketmq").options(nameServer=name_server, topic=topic, minPartitions=8).load()

def places(batches):
    import os, pyarrow as pa
    for batch in batches:
        yield pa.record_batch({"folder": [os.getcwd()] * len(batch), "body": batch["body"]})

rows = frame.select("body").mapInArrow(places, "folder string, body binary").collect()
done = archive(spark, ArchiveJob(target=target, name_server=name_server, topics=(topic,), rows_max=250))
print(json.dumps({"read": [[row.folder, int(row.body)] for row in rows], "archived": [done.total.rows, done.batches]}))
spark.stop()
"""


def environment() -> dict[str, str]:
    java = find_java()
    given = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_LOCAL_IP": "127.0.0.1"}
    given |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_WORKER_CORES": "1"}
    return {**os.environ, **given, **({} if java is None else {"JAVA_HOME": str(java)})}


class Cluster:
    """The daemons, killed together with all that they started."""

    def __init__(self, home: Path) -> None:
        self.home, self._processes = home, []
        self.master = f"spark://127.0.0.1:{free_port()}"
        port = self.master.rpartition(":")[2]
        self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for name in ("one", "two"):
            words = ("--host", "127.0.0.1", "--webui-port", "0", "--memory", "1g", "--work-dir", str(home / name))
            self._start("worker.Worker", *words, self.master)
        wait_for(lambda: self.log("master.Master").count("Registering worker") == 2)

    def log(self, name: str) -> str:
        return (self.home / f"{name}-0.txt").read_text()

    def close(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, *words: str) -> None:
        command = [f"{environment()['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *words]
        count = sum(1 for file in self.home.glob(f"{name}-*.txt"))
        with open(self.home / f"{name}-{count}.txt", "w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(), start_new_session=True, cwd=self.home
            )
        self._processes.append(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("standalone"))
    yield running
    running.close()


def test_a_cluster_reads_and_archives_a_topic_and_spark_submit_goes_on_with_it(cluster, make_topic, tmp_path, capfd):
    topic, target = make_topic(), tmp_path / "archive"
    topic.send_numbers(300, queue=0)
    topic.send_numbers(100, queue=1, start=300)
    words = (topic.name_server, topic.name, target, cluster.master, json.dumps(CONF))
    told = json.loads(output_of(sys.executable, "-c", READ_AND_ARCHIVE, *words, cwd=cluster.home))
    assert sorted(number for _, number in told["read"]) == list(range(400))
    folders = {Path(folder).relative_to(cluster.home).parts[0] for folder, _ in told["read"]}
    assert folders == {"one", "two"}
    assert told["archived"] == [400, 2]

    # The command names no master: what spark-submit was told counts.
    topic.send_numbers(50, queue=1, start=400)
    script = run_command(capfd, "script").stdout.strip()
    conf = [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
    submit = (f"{environment()['SPARK_HOME']}/bin/spark-submit", "--master", cluster.master, *conf, script)
    words = ("archive", target, "-n", topic.name_server, "-t", topic.name, "--json")
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert json.loads(output_of(*submit, *words, env={**environment(), **python}))["rows"] == 50
    assert cluster.log("master.Master").count("Registered app archive") == 1

    table = ds.dataset(target, format="parquet", partitioning="hive").to_table(["queueId", "queueOffset", "body"])
    rows = [(row["queueId"], row["queueOffset"], int(row["body"])) for row in table.to_pylist()]
    assert sorted(rows) == [(0, n, n) for n in range(300)] + [(1, n, 300 + n) for n in range(150)]


def output_of(*command: object, **more) -> str:
    """The last line that a program prints before it ends well."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]
