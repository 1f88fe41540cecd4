"""The same promises and the same archive on a real HDFS, through the file systems of Spark's own Hadoop."""

import threading
from dataclasses import astuple
from datetime import UTC, datetime

import pytest
from tests.interop.hdfs import mini_hdfs

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.compact import compact
from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.lakes.live_files import live_files
from twinlog.spark.jobs.lag.charts import write_plot
from twinlog.spark.jobs.lag.job import save_sample
from twinlog.spark.jobs.lag.sample import LagRow
from twinlog.spark.jobs.restore.map_table import read_map, replace_map
from twinlog.spark.jobs.sync.tables.history import HistoryTables, metadata_at
from twinlog.spark.jobs.sync.tables.lake_table import own_history
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import NotThere
from twinlog.spark.lake.lake import Entry
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.lake.spark_tables import append_table

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory):
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


@pytest.fixture(scope="module")
def spark():
    pytest.importorskip("pyspark")
    from twinlog.spark.session import start

    quick = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    session = start("hdfs", master="local[2]", conf={"spark.log.level": "ERROR", **quick})
    yield session
    session.stop()


def test_files_are_kept_as_on_every_lake(spark, hdfs):
    lake = open_lake(spark, parse_address(f"{hdfs}/some/place", "test"))
    assert (lake.read("a/b"), lake.list()) == (None, [])
    lake.write("a/b", b"one")
    lake.write("a/b", b"two!")
    lake.write("c", b"")
    assert (lake.read("a/b"), lake.read("c")) == (b"two!", b"")
    assert lake.list() == [Entry("a/b", 4), Entry("c", 0)]
    assert (lake.list("a/"), lake.list("none/")) == ([Entry("a/b", 4)], [])
    won = []

    def take(number: int) -> None:
        if lake.put_if_absent("n/1", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [lake.read("n/1")]
    assert lake.put_if_absent("n/1", lake.read("n/1") or b"")
    lake.move("a/b", "moved/b")
    lake.move("a/b", "moved/b")
    assert lake.read("moved/b") == b"two!"
    with pytest.raises(NotThere):
        lake.move("a/none", "moved/none")
    lake.delete(["moved/b", "n/1", "never"])
    assert lake.list() == [Entry("c", 0)]


def test_an_archive_on_hdfs_is_filled_compacted_and_read(spark, hdfs, tmp_path):
    target = f"{hdfs}/archives/orders"
    with (
        EmbeddedBroker(tmp_path / "broker") as broker,
        Admin(broker.namesrv_address) as admin,
        Producer(broker.namesrv_address, "g") as producer,
    ):
        admin.create_topic("Orders", queues=2)
        for start in (0, 60):
            producer.send_batch([Outgoing("Orders", b"%d" % number) for number in range(start, start + 60)])
            job = ArchiveJob(target=target, name_server=broker.namesrv_address, topics=("Orders",), rows_max=40)
            assert archive(spark, job).total.rows == 60
    assert sorted(int(row.body) for row in read_archive(spark, target).collect()) == list(range(120))
    done = compact(spark, CompactJob(target=target, before="2999-01-01"))
    assert (done.partitions, done.files_after) == (1, 1)
    assert sorted(int(row.body) for row in read_archive(spark, target).collect()) == list(range(120))
    assert sorted(int(row.body) for row in spark.read.parquet(target).collect()) == list(range(120))
    _, found = live_files(open_lake(spark, parse_address(target, "archive")))
    assert [len(files) for files in found.values()] == [1]


def test_tables_of_other_jobs_are_kept_on_hdfs(spark, hdfs, tmp_path):
    frame = spark.createDataFrame([(1,), (2,)], "n int").coalesce(1)
    for number in range(2):
        append_table(frame, f"{hdfs}/audits", "--to", f"audit-{number}")
    assert spark.read.parquet(f"{hdfs}/audits").count() == 4
    for count in (2, 1):
        replace_map(spark, frame.limit(count), parse_address(f"{hdfs}/map", "--map"))
    assert read_map(spark, f"{hdfs}/map").count() == 1

    lake = open_lake(spark, parse_address(f"{hdfs}/history", "--history"))
    own_history(lake, tmp_path)
    change = {"broker": "b", "kind": "topics", "key": "T", "newValue": "{}", "replica": "r", "sequence": 7, "seenAt": 0}
    HistoryTables(lake)._changes.append([change])
    assert HistoryTables(lake).drained[("b", "r")].entries == 7
    (row,) = metadata_at(spark, f"{hdfs}/history", datetime.now(UTC)).collect()
    assert (row.key, row.value) == ("T", "{}")

    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    sample = LagRow(kind="group", cluster="c", broker_name="b", group="g", messages=3)
    samples = open_lake(spark, parse_address(f"{hdfs}/lag", "--to"))
    for _ in range(2):
        save_sample(samples, ("n:1",), [astuple(sample)], noon)
    assert write_plot(spark, f"{hdfs}/lag", str(tmp_path / "lag.html")) == 1
    assert len(samples.list()) == 1


def test_a_file_system_that_spark_does_not_have_is_named_with_the_next_step(spark):
    with pytest.raises(BadOption, match=r"Spark has no file system for oss: add its connector"):
        read_archive(spark, "oss://bucket/a")
