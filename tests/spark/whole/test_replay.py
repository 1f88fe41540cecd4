"""Batches that Spark runs again, after a lost commit, a failure or kill -9, in a real Spark.

Beside these, test_with_spark replays a batch into Spark's own Parquet sink, and a first batch from `latest` that failed
with an `initialOffsetsLocation`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from tests.spark.topics import numbers
from tests.spark.whole.test_with_spark import bodies, read_stream, run, started, wait_for

from twinlog.spark.session import register

pytestmark = pytest.mark.timeout(300)


def drop_last_commit(checkpoint: Path) -> int:
    """Make Spark forget that its last batch is done; the number of that batch."""
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
    return last


def test_a_batch_without_its_commit_is_run_again_with_the_same_rows_in_the_same_order(spark, make_topic, tmp_path):
    """Parquet files of foreachBatch, one folder a batch: unlike the file sink, this does write the batch again."""
    topic = make_topic(queues=3)
    for queue in range(3):
        topic.send_numbers(20, queue=queue, start=20 * queue)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40, "minPartitions": 4}

    def save(batch, number):
        batch.select("queueId", "queueOffset", "body").write.mode("overwrite").parquet(f"{tmp_path}/out/batch={number}")

    def fill():
        query = read_stream(spark, topic, **options).writeStream.foreachBatch(save)
        query = started(query.option("checkpointLocation", f"{tmp_path}/check").trigger(availableNow=True))
        assert query.awaitTermination(120)

    def rows(number: int) -> list[list[dict]]:
        files = sorted(Path(f"{tmp_path}/out/batch={number}").glob("*.parquet"))
        return [pq.ParquetFile(file).read().to_pylist() for file in files]

    fill()
    last = drop_last_commit(tmp_path / "check")
    before = [rows(number) for number in range(last + 1)]
    assert sum(len(part) for batch in before for part in batch) == 60
    topic.send_numbers(30, queue=1, start=60)  # newer ones must not slip into the batch that is repeated
    fill()
    assert [rows(number) for number in range(last + 1)] == before
    assert written_by_all(tmp_path / "out") == numbers(90)


def written_by_all(out: Path) -> list[str]:
    return sorted((row["body"].decode() for file in out.rglob("*.parquet") for row in rows_of(file)), key=int)


def rows_of(file: Path) -> list[dict]:
    return pq.ParquetFile(file).read(["body"]).to_pylist()


def test_a_first_batch_from_latest_that_fails_loses_nothing_with_the_default_checkpoint_location(
    spark, make_topic, tmp_path
):
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    register(session)
    topic = make_topic(queues=1)
    topic.send_numbers(5)

    def fail(batch, number):
        raise RuntimeError("the first batch fails")

    def follow(action, **trigger):
        # Spark puts the checkpoint of a named query below the default location.
        stream = read_stream(session, topic, startingOffsets="latest").writeStream.foreachBatch(action)
        return started(stream.queryName(f"follows-{topic.name}").trigger(**trigger))

    query = follow(fail, processingTime="1 second")
    wait_for(lambda: list(tmp_path.glob("_twinlog_initial_offsets/*.json")))
    topic.send_numbers(3, start=5)
    with pytest.raises(PySparkException, match="the first batch fails"):
        query.awaitTermination(120)
    topic.send_numbers(4, start=8)
    seen = []
    assert follow(lambda batch, _: seen.extend(bodies(batch)), availableNow=True).awaitTermination(120)
    assert seen == numbers(7, 5)


STREAM = """
import sys
from twinlog.spark.session import start
name_server, topic, folder = sys.argv[1:]
spark = start("killed", master="local[2]", conf={"spark.log.level": "OFF", "spark.driver.memory": "512m",
              "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"})
options = {"nameServer": name_server, "topic": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}
frame = spark.readStream.format("rocketmq").options(**options).load().select("body", "queueId", "queueOffset")
writer = frame.writeStream.format("parquet").option("path", f"{folder}/out")
writer.option("checkpointLocation", f"{folder}/check").trigger(availableNow=True).start().awaitTermination()
"""


def test_a_stream_killed_in_the_middle_of_a_batch_has_every_row_once_after_it_was_started_again(
    spark, make_topic, tmp_path
):
    topic = make_topic(queues=3)
    for queue in range(3):
        topic.send_numbers(2000, queue=queue, start=2000 * queue)
    command = [sys.executable, "-c", STREAM, topic.name_server, topic.name, str(tmp_path)]
    killed = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        limit = time.monotonic() + 150
        while not in_the_middle(tmp_path):
            assert killed.poll() is None, killed.communicate()[1]
            assert time.monotonic() < limit, "no batch came"
            threading.Event().wait(0.005)
    finally:
        kill_session(killed)
    begun, done = numbers_in(tmp_path / "check/offsets"), numbers_in(tmp_path / "check/commits")
    assert done < begun, "it was to be killed in the middle of a batch"
    topic.send_numbers(100, start=6000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 3000}
    run(read_stream(spark, topic, **options), tmp_path / "out", tmp_path / "check")
    found = spark.read.parquet(str(tmp_path / "out"))  # reads what _spark_metadata lists
    rows = [(row.queueId, row.queueOffset, int(row.body)) for row in found.collect()]
    assert len({row[:2] for row in rows}) == len(rows) == 6100
    assert sorted(row[2] for row in rows) == list(range(6100))


def in_the_middle(folder: Path) -> bool:
    """Whether batches are done, and the files of one are being written."""
    begun, done = numbers_in(folder / "check/offsets"), numbers_in(folder / "check/commits")
    return done >= 1 and begun > done and len(list((folder / "out").glob("part-*.parquet"))) > 3 * (done + 1)


def numbers_in(folder: Path) -> int:
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


def kill_session(process: subprocess.Popen) -> None:
    """Python and the JVM at one stroke, then Spark's workers, which have a group of their own."""
    os.killpg(process.pid, signal.SIGKILL)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    process.communicate()
