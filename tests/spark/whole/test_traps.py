"""Spark's traps for Python sources, each with the test that shows that ours does not fall into it.

 1  the first batch's start is not kept      test_replay, test_stream_reader (initial offsets)
 2  commit comes late, the last one never    here
 3  stop is never called                     here
 4  offsets are compared as text             test_options, test_stream_reader (an idle trigger)
 5  the Arrow schema must fit exactly        test_batch_reader (every batch), test_with_spark
 6  only the first batch is checked          test_batch_reader (every batch), here
 7  no pruning but by the user's schema      test_with_spark (a schema chooses columns)
 8  push-down is off and fails when used     test_with_spark (a session that was told nothing)
 9  Arrow becomes rows in the JVM at once    here
10  no metrics, so lag is in the progress    here
11  no real-time and no continuous mode      here
12  a plan without partitions gets one       here, test_with_spark (an empty topic)
13  local[2] does not try tasks again        test_with_spark (a task that fails), conftest
14  a writer learns its batch from the task  test_writer (need to know their batch)
15  a killed task can have written           test_writer_with_spark (tried again), test_stamped_write
16  persistent tables lose their options     here
17  a number is no body under ANSI           test_writer_with_spark (a number as body)
18  simple readers move rows by the driver   here
19  the file sink leaves orphans             here, test_replay (kill -9)
"""

import json
import pickle
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from tests.spark.topics import Topic, bodies_of, numbers
from tests.spark.whole.test_with_spark import read, read_stream, run, written
from tests.store.store_at import fill, open_store

from twinlog.client.sync import PullConsumer
from twinlog.spark.errors import BadOption
from twinlog.spark.reading.stores.batch_reader import StoreBatchReader
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.reading.stores.stream_reader import StoreStreamReader
from twinlog.spark.schema import MESSAGE_COLUMNS, STORE_MESSAGE_COLUMNS
from twinlog.spark.source import RocketmqSource
from twinlog.spark.store_source import RocketmqStoreSource

pytestmark = pytest.mark.timeout(300)


class Archived:
    """A topic of 30 messages, read in two batches to Parquet by a query that is over."""

    def __init__(self, spark, topic: Topic, folder: Path) -> None:
        self.topic, self.out = topic, folder / "out"
        topic.send_numbers(30)
        topic.create_group("spark-traps")
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
        options |= {"consumerGroup": "spark-traps", "commitOffsetsToGroup": "true"}
        query = run(read_stream(spark, topic, **options), self.out, folder / "check")
        self.progress = [one for one in query.recentProgress if one["numInputRows"]]


@pytest.fixture(scope="module")
def archived(spark, broker, _producer, tmp_path_factory):
    return Archived(
        spark, Topic(broker.namesrv_address, _producer, "Traps", queues=1), tmp_path_factory.mktemp("traps")
    )


def test_2_the_group_knows_of_the_last_batch_although_spark_never_commits_it(archived):
    with PullConsumer(archived.topic.name_server, "spark-traps", register=False) as consumer:
        assert consumer.committed(archived.topic.queue(0)) == 30


def test_3_a_reader_that_is_never_stopped_leaves_nothing_that_the_next_would_need(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(3)
    killed = topic.stream(startingOffsets="earliest")
    start = killed.initialOffset()
    end = killed.latestOffset(start, killed.getDefaultReadLimit())
    killed.prepareForTriggerAvailableNow()
    assert pickle.loads(pickle.dumps(killed)).partitions(start, end)  # no socket, thread or lock in it
    killed.stop()
    killed.stop()
    assert bodies_of(killed, list(killed.partitions(start, end))) == numbers(3)
    del killed
    follower = topic.stream(startingOffsets="latest")
    topic.send_numbers(2, start=3)
    later = follower.latestOffset(end, follower.getDefaultReadLimit())
    assert bodies_of(follower, list(follower.partitions(end, later))) == numbers(2, 3)


def test_6_every_batch_of_a_partition_has_the_schema_and_not_only_the_first(make_topic, monkeypatch):
    monkeypatch.setattr("twinlog.spark.reading.brokers.fetch._CHUNK_BYTES", 1000)
    topic = make_topic(queues=1)
    topic.send_numbers(100)
    topic.send("tagged", tags="late")  # its tags and properties are the first of their kind
    reader = topic.reader(pullBatchSize=10, pullDepth=1)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert len(batches) > 5 and sum(map(len, batches)) == 101
    assert len({batch.schema for batch in batches}) == 1
    assert batches[0].schema.names == list(MESSAGE_COLUMNS)


def test_9_rows_come_out_of_the_scan_so_nothing_waits_for_columns(spark, make_topic, capsys):
    read(spark, make_topic(), "topic string").where("topic = 'x'").explain()
    plan = capsys.readouterr().out
    assert "BatchScan rocketmq" in plan
    assert "ColumnarToRow" not in plan


def test_10_the_progress_shows_how_far_behind_the_query_is(archived):
    def offset(value) -> int:
        return (json.loads(value) if isinstance(value, str) else value)[archived.topic.key(0)]

    first, last = (progress["sources"][0] for progress in (archived.progress[0], archived.progress[-1]))
    assert (offset(first["endOffset"]), offset(first["latestOffset"])) == (20, 30)
    assert (offset(last["endOffset"]), offset(last["latestOffset"])) == (30, 30)


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ({"continuous": "1 second"}, "rocketmq does not support continuous processing"),
        ({"realTime": "5 minutes"}, r"STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"),
    ],
)
def test_11_modes_without_micro_batches_are_refused_by_name(spark, make_topic, tmp_path, trigger, message):
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", "false")  # the sink is not what this is about
    writer = read_stream(session, make_topic(), startingOffsets="earliest").select("body").writeStream.format("noop")
    writer = writer.outputMode("update").option("checkpointLocation", str(tmp_path)).trigger(**trigger)
    with pytest.raises(PySparkException, match=message):
        writer.start().awaitTermination(120)


def test_12_the_partition_that_spark_makes_up_for_an_empty_plan_has_no_rows(make_topic, tmp_path):
    nothing = InputPartition(None)
    assert list(make_topic().reader().read(nothing)) == []
    assert list(make_topic().stream(startingOffsets="earliest").read(nothing)) == []
    with open_store(tmp_path / "broker-s") as store:
        fill(store, 3)
    given = {"path": str(tmp_path / "broker-s" / "store")}
    assert list(StoreBatchReader(store_options(given), STORE_MESSAGE_COLUMNS).read(nothing)) == []
    assert list(StoreStreamReader(store_options(given, streaming=True), STORE_MESSAGE_COLUMNS).read(nothing)) == []


@pytest.mark.parametrize("columns", ["", "(topic string)"])
def test_16_a_persistent_table_says_to_make_a_temporary_view(spark, make_topic, columns):
    topic = make_topic()
    options = f"options (nameServer '{topic.name_server}', topic '{topic.name}')"
    made = f"Kept{topic.name}"
    try:
        with pytest.raises(PySparkException, match=r"persistent table.*CREATE TEMPORARY VIEW name USING rocketmq"):
            spark.sql(f"create table {made} {columns} using rocketmq {options}")  # without columns it ends here
            spark.sql(f"select count(*) from {made}").collect()
    finally:
        spark.sql(f"drop table if exists {made}")
    topic.send_numbers(2)
    spark.sql(f"create or replace temporary view view_of_{topic.name} using rocketmq {options}")
    assert spark.sql(f"select count(*) n from view_of_{topic.name}").first().n == 2


def test_16_a_persistent_table_of_a_store_says_the_same(tmp_path):
    for options in ({"path": str(tmp_path), "owner": "me", "provider": "rocketmq_store"}, {}):
        with pytest.raises(BadOption, match="CREATE TEMPORARY VIEW"):
            RocketmqStoreSource(options).schema()


def test_18_no_source_reads_on_the_driver(make_topic, tmp_path):
    for source in (RocketmqSource, RocketmqStoreSource):
        assert source.simpleStreamReader is DataSource.simpleStreamReader  # the one that says that there is none
    for reader in (make_topic().stream(), StoreStreamReader):
        kind = reader if isinstance(reader, type) else type(reader)
        assert issubclass(kind, DataSourceStreamReader)
        assert not issubclass(kind, SimpleDataSourceStreamReader)


def test_19_files_that_a_killed_task_left_do_not_count_for_readers_of_the_sinks_own_list(spark, archived):
    first = sorted(archived.out.glob("part-*.parquet"))[0]
    orphan = first.with_name(first.name.replace("part-0", "part-9"))
    shutil.copy(first, orphan)
    try:
        assert written(spark, archived.out) == numbers(30)
        plain = [str(file) for file in archived.out.glob("part-*.parquet")]
        assert ds.dataset(plain, format="parquet").count_rows() > 30  # who lists the files alone counts rows twice
    finally:
        orphan.unlink()
