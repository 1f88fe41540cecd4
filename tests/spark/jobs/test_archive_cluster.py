"""The archive on a standalone cluster, a master and two workers, handed to it by spark-submit."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from twinlog.cli.pipeline import app
from twinlog.spark.session import find_java

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
BIN = Path(pyspark.__file__).parent / "bin"


@contextmanager
def daemon(log: Path, kind: str, *words: str):
    """A part of a Spark cluster, which writes to `log`."""
    home = find_java()
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **own, **({"JAVA_HOME": str(home)} if home else {})}
    command = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
    with open(log, "w") as out:
        process = subprocess.Popen(command, cwd=log.parent, env=environment, stderr=out, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def told(log: Path, pattern: str) -> str:
    limit = time.monotonic() + 120
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.1)
    return found[1]


@pytest.fixture
def cluster(tmp_path):
    """The address of a master that has two workers of one core each."""
    with ExitStack() as stack:
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        stack.enter_context(daemon(tmp_path / "master.log", "master.Master", *where))
        url = told(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work{number}"))
            log = tmp_path / f"worker{number}.log"
            stack.enter_context(daemon(log, "worker.Worker", *where, *size, url))
            told(log, r"(Successfully registered with master)")
        yield url


def test_spark_submit_runs_the_archive_on_two_workers(cluster, make_topic, tmp_path):
    topic = make_topic(queues=4)
    for queue in range(4):
        topic.send_numbers(50, queue=queue, start=50 * queue)
    command = [str(BIN / "spark-submit"), "--master", cluster, "--conf", "spark.executor.memory=512m"]
    command += ["--conf", "spark.ui.enabled=false", app.__file__, "archive", str(tmp_path / "archive")]
    command += ["-n", topic.name_server, "-t", topic.name, "--json"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1])["rows"] == 200
    rows = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table(["body"])
    assert sorted(int(body.as_py()) for body in rows["body"]) == list(range(200))
    # Each worker ran an executor of this application.
    assert all(list((tmp_path / f"work{number}").glob("app-*/*/stderr")) for number in range(2))
