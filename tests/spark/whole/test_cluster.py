"""A real standalone cluster, a master and two workers of one core each, on this machine."""

import contextlib
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
from tests.spark.jobs.sync.test_ticks import assert_same_log
from tests.spark.whole.test_with_spark import wait_for

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.spark.jobs.sync.replicas.replica_state import SyncFolder
from twinlog.spark.jobs.sync_status import load_status
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
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.master = f"spark://127.0.0.1:{free_port()}"
        port = self.master.rpartition(":")[2]
        self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for name in ("one", "two"):
            words = ("--host", "127.0.0.1", "--webui-port", "0", "--memory", "1g", "--work-dir", str(home / name))
            self.workers[name] = self._start("worker.Worker", *words, self.master)
        wait_for(lambda: self.log("master.Master").count("Registering worker") == 2)

    def log(self, name: str) -> str:
        return (self.home / f"{name}-0.txt").read_text()

    def kill_worker(self, name: str) -> None:
        """End a worker and its executor, as a machine that is gone; Python processes of its tasks may outlive it."""
        assert self.executors(name)
        os.killpg(self.workers[name].pid, signal.SIGKILL)
        self.workers[name].wait()
        wait_for(lambda: not self.executors(name))

    def executors(self, name: str) -> list[str]:
        """The executors that a worker has started."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.home / name):
                    found += [process.name] if (process / "exe").readlink().name == "java" else []
        return found

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [f"{environment()['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *words]
        count = sum(1 for file in self.home.glob(f"{name}-*.txt"))
        with open(self.home / f"{name}-{count}.txt", "w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(), start_new_session=True, cwd=self.home
            )
        self._processes.append(process)
        return process


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
    conf = [word for key, value in {**CONF, "spark.cores.max": "1"}.items() for word in ("--conf", f"{key}={value}")]
    submit = (f"{environment()['SPARK_HOME']}/bin/spark-submit", "--master", cluster.master, *conf, script)
    words = ("archive", target, "-n", topic.name_server, "-t", topic.name, "--json")
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert json.loads(output_of(*submit, *words, env={**environment(), **python}))["rows"] == 50
    assert cluster.log("master.Master").count("Registered app archive") == 1

    table = ds.dataset(target, format="parquet", partitioning="hive").to_table(["queueId", "queueOffset", "body"])
    rows = [(row["queueId"], row["queueOffset"], int(row["body"])) for row in table.to_pylist()]
    assert sorted(rows) == [(0, n, n) for n in range(300)] + [(1, n, 300 + n) for n in range(150)]


@pytest.mark.interop
def test_a_worker_that_is_killed_in_the_middle_of_a_synchronisation_costs_time_and_no_byte(cluster, tmp_path):
    """The masters send two megabytes a second, so that the kill comes in the middle of their copies."""
    slowly = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "2000000", "haTransferBatchSize": "100000"}
    to, homes = tmp_path / "to", {name: tmp_path / name for name in ("broker-a", "broker-b")}
    with contextlib.ExitStack() as stack:
        words = ["pipeline", "sync", "--to", str(to), "--every", "2s", "--master", cluster.master]
        for name, home in homes.items():
            settings = {**slowly, "brokerName": name, "mappedFileSizeCommitLog": str(4 << 20)}
            broker = stack.enter_context(EmbeddedBroker(home, settings))
            producer = stack.enter_context(Producer(broker.namesrv_address, "PG"))
            for _ in range(9):
                producer.send(Outgoing("Big", os.urandom(1_000_000)))
            words += ["--address", broker.broker_address]
        words += [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
        with open(tmp_path / "output", "wb") as output:
            job = subprocess.Popen([sys.executable, "-m", "twinlog.cli.main", *words], stdout=output, stderr=output)
        stack.callback(job.wait)
        stack.callback(job.kill)

        def until(condition):
            wait_for(lambda: job.poll() is not None or condition(), 200)
            assert job.poll() is None, (tmp_path / "output").read_text()[-3000:]

        until(lambda: all(SyncFolder(to / name).load().end > 0 for name in homes))
        cluster.kill_worker("two")
        ends = [SyncFolder(to / name).load().end for name in homes]
        until(lambda: (found := load_status(to)) is not None and [one.lag_bytes for one in found.brokers] == [0, 0])
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 0, (tmp_path / "output").read_text()[-3000:]
        for (name, home), end in zip(homes.items(), ends, strict=True):
            assert end < SyncFolder(to / name).load().end, "the kill came in the middle"
            assert_same_log(home / "store", to / name)
    ranges = ds.dataset(to / "_history" / "ranges").to_table(["broker", "fromOffset", "toOffset"]).to_pylist()
    for name in homes:
        found = sorted((row["fromOffset"], row["toOffset"]) for row in ranges if row["broker"] == name)
        assert [one[0] for one in found] == [0, *(one[1] for one in found[:-1])], "each range once"


def output_of(*command: object, **more) -> str:
    """The last line that a program prints before it ends well."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]
