"""Archives made by a real Spark: every message once, whatever happens to the runs that made them."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.spark.topics import numbers
from tests.store import golden

from twinlog.spark.jobs.archive.compact import CompactJob, compact
from twinlog.spark.jobs.archive.files import finish_last_batch, partition_files, partitions
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.layout import BadArchive, load_commit
from twinlog.spark.jobs.archive.query import ArchiveFailed

pytestmark = pytest.mark.timeout(400)
KEY = ["topic", "brokerName", "queueId", "queueOffset"]


def plain_rows(root: Path) -> list[tuple]:
    """What a reader that knows nothing of archives sees, in order."""
    table = ds.dataset(root, format="parquet", partitioning=ds.partitioning(flavor="hive")).to_table([*KEY, "body"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def bodies(root: Path) -> list[str]:
    return sorted((row[-1].decode() for row in plain_rows(root)), key=int)


def job_for(topic, target: Path, **more) -> ArchiveJob:
    return ArchiveJob(target=target, name_server=topic.name_server, topics=(topic.name,), **more)


def test_up_to_now_in_limited_batches_and_again_later(spark, make_topic, tmp_path):
    topic = make_topic()
    topic.send_numbers(25, queue=0)
    topic.send_numbers(5, queue=1, start=25)
    root, told = tmp_path / "archive", []
    done = archive(spark, job_for(topic, root, rows_max=12), told.append)
    assert (done.total.rows, done.topics[topic.name].rows, done.batches) == (30, 30, 3)
    assert done.total.files == sum(len(partition_files(root, one)) for one in partitions(root))
    assert (told[-1].done, told[-1].total) == (30, 30)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    names = " ".join(jobs.apply(n).description().toString() for n in range(jobs.size()))
    assert all(f"Some(archive {topic.name}, batch {n})" in names for n in range(3))
    topic.send_numbers(5, queue=1, start=30)
    assert archive(spark, job_for(topic, root)).total.rows == 5
    assert bodies(root) == numbers(35)
    table = read_archive(spark, root)
    (row,) = table.where(f"topic = '{topic.name}' and queueId = 1 and queueOffset = 9").collect()
    assert (row.body, row.brokerName, row.day) == (b"34", "broker-dev", row.storeTimestamp.date())
    assert row.properties["UNIQ_KEY"] == row.msgId
    # A batch that counts is not repeated when Spark forgot that it was done.
    checkpoint = root / "_checkpoint" / "commits"
    last = max(checkpoint.glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / f".{last.name}.crc").unlink()
    topic.send_numbers(1, start=35)
    assert archive(spark, job_for(topic, root)).total.rows == 1
    assert bodies(root) == numbers(36)
    with pytest.raises(BadArchive, match="it also has commitLogOffset"):
        archive(spark, job_for(topic, root, columns=("body",)))
    for path in sorted((root / "_checkpoint").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(ArchiveFailed, match="checkpoint was removed or replaced"):
        archive(spark, job_for(topic, root))
    assert bodies(root) == numbers(36)


def test_a_run_continues_and_finds_what_is_new_until_it_is_stopped(spark, make_topic, tmp_path):
    topic, over, sent = make_topic(queues=1), threading.Event(), threading.Event()
    topic.send_numbers(10)

    def saw(progress):
        if progress.done == 10 and not sent.is_set():
            sent.set()
            topic.send_numbers(1, start=10)
        if progress.done == 11:
            over.set()

    limit = time.monotonic() + 120
    job = job_for(topic, tmp_path / "a", every="500 milliseconds", columns=("body",), compression="zstd")
    done = archive(spark, job, saw, is_over=lambda: over.is_set() or time.monotonic() > limit)
    assert done.total.rows == 11
    assert bodies(tmp_path / "a") == numbers(11)
    assert read_archive(spark, tmp_path / "a").columns == [
        *("topic", "brokerName", "queueId", "queueOffset", "body", "storeTimestamp", "day")
    ]


def test_a_store_that_java_wrote_is_archived_and_compacted(spark, tmp_path):
    store = golden.unpack("normal", tmp_path / "broker-x")
    root = tmp_path / "archive"
    done = archive(spark, ArchiveJob(target=root, stores=(str(store),), bytes_max="60k"))
    assert done.topics["TopicA"].rows == 27
    assert done.batches > 1
    expected = spark.read.format("rocketmq_store").load(str(store))
    before = plain_rows(root)
    # Topics of the brokers' own and of retries are archived when they are asked for by name; a prepared and a rolled
    # back record of this log are in no queue.
    rows = expected.where("sysFlag & 4 = 0").select(KEY).collect()
    wanted = [tuple(row) for row in rows if row.topic.startswith("Topic")]
    assert [row[:4] for row in before] == sorted(wanted)
    files = sum(len(partition_files(root, one)) for one in partitions(root))
    compacted = compact(spark, CompactJob(target=root, before="2999-01-01"))
    assert compacted.files_before > compacted.files_after
    assert sum(len(partition_files(root, one)) for one in partitions(root)) == len(partitions(root)) < files
    assert plain_rows(root) == before


def test_a_task_that_cannot_write_fails_the_run_and_its_batch_does_not_count(spark, make_topic, tmp_path, monkeypatch):
    topic, root = make_topic(queues=1), tmp_path / "archive"
    topic.send_numbers(3)
    archive(spark, job_for(topic, root))
    topic.send_numbers(3, start=3)

    def obstruct(path):  # once the run has tidied up, staging becomes a file
        last = finish_last_batch(path)
        (root / "_staging").write_text("")
        return last

    with monkeypatch.context() as patch:
        patch.setattr("twinlog.spark.jobs.archive.job.finish_last_batch", obstruct)
        with pytest.raises(ArchiveFailed, match=r"_staging/\w+ cannot be written \(Not a directory\): free space"):
            archive(spark, job_for(topic, root))
    assert bodies(root) == numbers(3)
    (root / "_staging").unlink()
    archive(spark, job_for(topic, root))
    assert bodies(root) == numbers(6)


# -- killed in the middle, as an operator would run it -------------------------------------------------


class Run:
    """`twinlog pipeline` in processes of its own."""

    def __init__(self, *words: object, **options) -> None:
        quick = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # short runs: compile little
        command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", *map(str, words)]
        command += ["--master", "local[2]", "--conf", quick]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
        )

    def kill(self) -> None:
        """All processes of the session at once: Python, the JVM, and Spark's workers."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == self.process.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.process.communicate()


def test_kill_9_in_the_middle_of_runs_loses_and_doubles_nothing(spark, make_topic, tmp_path):
    topic, root = make_topic(queues=3), tmp_path / "archive"
    for queue in range(3):
        topic.send_numbers(4000, queue=queue, start=4000 * queue)
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    words = ("archive", root, "-n", topic.name_server, "-t", topic.name, "--rows-per-batch", 1000, "--json")
    killed_at = []
    for _ in range(2):
        run = Run(*words)
        begun = load_commit(root).batch if root.exists() else -1
        limit = time.monotonic() + 120
        while load_commit(root).batch < begun + 1 and run.process.poll() is None:
            assert time.monotonic() < limit, f"seed {seed}: no batch came"
            time.sleep(0.01)
        time.sleep(chance.random() * 0.8)
        run.kill()
        killed_at.append(load_commit(root).batch)
    topic.send_numbers(100, start=12000)
    archive(spark, job_for(topic, root, rows_max=5000))
    rows = plain_rows(root)
    assert len({row[:4] for row in rows}) == len(rows) == 12100, f"seed {seed}, killed at batches {killed_at}"
    assert sorted(int(row[-1]) for row in rows) == list(range(12100))
    assert killed_at[-1] < load_commit(root).batch


def test_what_cannot_be_done_is_said_in_one_line(make_topic, tmp_path):
    topic = make_topic()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    run = Run("archive", tmp_path / "mine", "-n", topic.name_server, "-t", topic.name)
    _, told = run.process.communicate(timeout=120)
    assert run.process.returncode == 1
    assert f"twinlog: {tmp_path / 'mine'} is not an archive, it holds notes.txt: give an empty directory" in told
    assert "Traceback" not in told
