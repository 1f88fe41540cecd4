"""The sources inside a real Spark: what only Spark can show, and each trap that lost data or failed a query once."""

import json
import shutil
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from tests.spark.topics import numbers
from tests.store import golden

from twinlog.spark.schema import MESSAGE_COLUMNS

# All that need a session are in this file, since `make test` gives a file to one process.
pytestmark = pytest.mark.timeout(300)


def read(spark, topic, schema=None, **more):
    one = spark.read.format("rocketmq").options(**topic.options(**more))
    return (one.schema(schema) if schema else one).load()


def read_stream(spark, topic, **more):
    return spark.readStream.format("rocketmq").options(**topic.options(**more)).load()


def bodies(frame):
    return sorted((row.body.decode() for row in frame.select("body").collect()), key=int)


def run(frame, out: Path, checkpoint: Path, **trigger):
    """Write a stream to Parquet until it has nothing more to do."""
    writer = frame.select("body", "queueId", "queueOffset").writeStream.format("parquet")
    writer = writer.option("path", str(out)).option("checkpointLocation", str(checkpoint))
    query = started(writer.trigger(**(trigger or {"availableNow": True})))
    assert query.awaitTermination(120)
    return query


def started(writer):
    """The query once it runs; Spark gives its Python worker 10 s to start, which a busy machine may not keep."""
    for _ in range(4):
        query = writer.start()
        wait_for(lambda q=query: not q.isActive or q.status["message"] != "Initializing sources")
        if query.exception() is None or "connect back" not in str(query.exception()):
            break
    return query


def written(spark, out):
    return bodies(spark.read.parquet(str(out)))


def test_a_topic_is_a_table_with_every_column(spark, make_topic):
    topic = make_topic()
    topic.send_numbers(30, queue=0)
    topic.send("30", queue=1, tags="hot")
    frame = read(spark, topic)
    assert [f"{f.name} {f.dataType.simpleString()}" for f in frame.schema] == [
        f"{name} {kind}" for name, kind in MESSAGE_COLUMNS.items()
    ]
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == list(range(31))
    (hot,) = [row for row in rows if row.tags == "hot"]
    assert (hot.topic, hot.queueId, hot.queueOffset, hot.properties["TAGS"]) == (topic.name, 1, 0, "hot")
    assert abs(hot.storeTimestamp.timestamp() - time.time()) < 3600


def test_a_schema_chooses_columns_and_one_that_does_not_fit_is_refused(spark, make_topic):
    topic = make_topic(queues=1)
    topic.send("1")
    (row,) = read(spark, topic, "queueOffset bigint, topic string").collect()
    assert row.asDict() == {"queueOffset": 0, "topic": topic.name}
    for schema, told in (
        ("storeSize bigint", "is int, the schema has bigint"),
        ("offset bigint", "no column 'offset'"),
        ("topic string not null", "NOT NULL"),
    ):
        with pytest.raises(PySparkException, match=told) as refused:
            read(spark, topic, schema).collect()
        assert "Traceback" not in str(refused.value), "the message alone, without the frames of a worker"
    assert "The columns are topic, brokerName, queueId" in str(wrong_column(spark, topic))


def wrong_column(spark, topic):
    with pytest.raises(PySparkException) as refused:
        read(spark, topic, "queueOfset bigint").collect()
    return refused.value


def test_an_error_in_a_task_and_in_a_stream_is_its_message_alone(spark, make_topic, tmp_path):
    topic = make_topic(queues=1)
    topic.send("1")
    offsets = topic.json(q0=7)
    with pytest.raises(PySparkException, match="this offset does not exist yet") as refused:
        read(spark, topic, startingOffsets=offsets).collect()
    assert "Traceback" not in str(refused.value)
    frame = read_stream(spark, topic, startingOffsets=offsets)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = started(writer.trigger(availableNow=True))
    with pytest.raises(PySparkException) as failed:
        query.awaitTermination(60)
    lines = [line for line in str(failed.value).splitlines() if line.strip()]
    assert "Traceback" not in str(failed.value)
    assert "this offset does not exist yet" in lines[0]


def test_an_unknown_option_is_refused_with_the_nearest_name(spark, make_topic):
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        read(spark, make_topic(), startingOffset="earliest").collect()


def test_an_empty_topic_is_an_empty_table(spark, make_topic):
    assert read(spark, make_topic()).count() == 0


def test_filters_are_applied(spark, make_topic):
    topic = make_topic()
    topic.send_numbers(20, queue=0)
    topic.send_numbers(20, queue=1, start=20)
    frame = read(spark, topic).where("queueId = 1 and queueOffset >= 15 and storeTimestamp > '2020-01-01'")
    assert bodies(frame) == numbers(5, 35)


def test_a_session_without_registration_finds_the_sources(spark, make_topic):
    other = spark.newSession()
    topic = make_topic()
    topic.send_numbers(5)
    assert bodies(read(other, topic).where("queueOffset >= 3")) == ["3", "4"]


def test_a_frame_keeps_the_end_of_its_first_query_and_a_new_load_sees_more(spark, make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    frame, later = read(spark, topic), read(spark, topic)
    assert frame.count() == 5
    topic.send_numbers(3, start=5)
    assert [frame.count(), frame.where("queueOffset >= 4").count(), frame.union(frame).count()] == [5, 1, 10]
    assert [later.count(), read(spark, topic).count()] == [8, 8]


def test_a_store_is_a_table_for_sql(spark, tmp_path):
    path = golden.unpack("normal", tmp_path / "broker-x")
    frame = spark.read.format("rocketmq_store").option("splitBytes", "1m").load(str(path))
    frame.createOrReplaceTempView("messages")
    assert spark.sql("select count(*) n from messages where topic = 'TopicA'").first().n == 29
    # A temporary view carries its options; a persistent table would lose them.
    options = f"path '{path}', kind 'consumer_offsets'"
    spark.sql(f"create or replace temporary view offsets using rocketmq_store options ({options})")
    assert spark.sql("select offset from offsets where topic='TopicA' and queueId=0").first().offset == 2


def test_available_now_reads_in_limited_batches_and_goes_on_later(spark, make_topic, tmp_path):
    topic = make_topic()
    topic.send_numbers(25, queue=0)
    topic.send_numbers(5, queue=1, start=25)
    frame = read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    query = run(frame, tmp_path / "out", tmp_path / "check")
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(rows) == 30
    assert max(rows) <= 12
    topic.send_numbers(5, queue=1, start=30)
    run(frame, tmp_path / "out", tmp_path / "check")
    assert written(spark, tmp_path / "out") == numbers(35)


def test_a_replayed_batch_gives_the_same_rows(spark, make_topic, tmp_path):
    """Without its last commit Spark runs that batch again; rows that differ would be lost or double in the sink."""
    topic = make_topic()
    topic.send_numbers(10, queue=0)
    frame = read_stream(spark, topic, startingOffsets="earliest", minPartitions=3)
    run(frame, tmp_path / "out", tmp_path / "check")
    commits = tmp_path / "check" / "commits"
    for file in (commits / "0", commits / ".0.crc"):
        file.unlink()
    topic.send_numbers(10, queue=0, start=10)
    run(frame, tmp_path / "out", tmp_path / "check")
    assert written(spark, tmp_path / "out") == numbers(20)


def test_a_first_batch_from_latest_that_fails_loses_nothing(spark, make_topic, tmp_path):
    """Spark does not keep where the first batch of a Python source began, and asks again for its replay."""
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    options = {"startingOffsets": "latest", "initialOffsetsLocation": tmp_path / "initial"}
    check = tmp_path / "check"

    def fail(batch, number):
        raise RuntimeError("the first batch fails")

    query = read_stream(spark, topic, **options).writeStream.foreachBatch(fail)
    query = started(query.option("checkpointLocation", str(check)).trigger(processingTime="1 second"))
    wait_for(lambda: (tmp_path / "initial" / "initial-offsets.json").exists())
    topic.send_numbers(3, start=5)  # in the first batch or behind it: in the replay's start they must not be skipped
    with pytest.raises(PySparkException, match="the first batch fails"):
        query.awaitTermination(120)
    assert (check / "offsets" / "0").exists()
    assert not (check / "commits" / "0").exists()
    topic.send_numbers(4, start=8)
    seen = []
    again = read_stream(spark, topic, **options).writeStream.foreachBatch(lambda batch, _: seen.extend(bodies(batch)))
    again = started(again.option("checkpointLocation", str(check)).trigger(availableNow=True))
    assert again.awaitTermination(120)
    assert seen == numbers(7, 5)


def test_a_running_stream_finds_new_queues_and_commits_to_the_group(spark, make_topic, tmp_path):
    topic = make_topic(queues=1)
    topic.create_group("spark-follows")
    topic.send_numbers(4)
    seen = []
    options = {"startingOffsets": "earliest", "consumerGroup": "spark-follows", "commitOffsetsToGroup": "true"}
    query = read_stream(spark, topic, **options).writeStream.foreachBatch(lambda batch, _: seen.extend(bodies(batch)))
    query = started(query.option("checkpointLocation", str(tmp_path)).trigger(processingTime="500 milliseconds"))
    try:
        wait_for(lambda: len(seen) == 4)
        topic.resize(2)
        topic.send_numbers(3, queue=1, start=4)
        wait_for(lambda: len(seen) == 7)
        assert seen == numbers(7)
        from twinlog.client.sync import PullConsumer

        with PullConsumer(topic.name_server, "spark-follows", register=False) as consumer:
            wait_for(lambda: [consumer.committed(topic.queue(n)) for n in (0, 1)] == [4, 3])
        idle = query.lastProgress["batchId"]
        time.sleep(2)
        assert query.lastProgress["batchId"] <= idle + 1  # equal offsets are equal text: no batch without news
        source = query.lastProgress["sources"][0]
        assert source["latestOffset"] == {topic.key(0): 4, topic.key(1): 3} or json.loads(source["latestOffset"])
    finally:
        query.stop()


def test_a_task_that_fails_is_tried_again_and_gives_the_same_rows(spark, make_topic):
    topic = make_topic()
    topic.send_numbers(20)

    def fail_once(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if context.attemptNumber() == 0 and number == 0:
                raise RuntimeError("a task fails")
            yield batch

    frame = read(spark, topic, minPartitions=2).select("body").mapInArrow(fail_once, "body binary")
    assert bodies(frame) == numbers(20)


def test_a_store_is_a_stream(spark, tmp_path):
    from tests.store.store_at import fill, open_store

    with open_store(tmp_path / "broker-s") as store:
        fill(store, 200)
        path = tmp_path / "broker-s" / "store"
        frame = spark.readStream.format("rocketmq_store").option("maxBytesPerTrigger", "20k").load(str(path))
        frame = frame.selectExpr("commitLogOffset", "queueId", "queueOffset", "body")
        run(frame, tmp_path / "out", tmp_path / "check")
        fill(store, 50, start=200)
        run(frame, tmp_path / "out", tmp_path / "check")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 250
    shutil.rmtree(tmp_path / "out")


def wait_for(condition, seconds=90):
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        pause.wait(0.1)
