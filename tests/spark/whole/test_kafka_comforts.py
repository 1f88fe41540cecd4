"""What users of Spark's Kafka source look for: metrics of progress, a stateful query, filters, times of delivery."""

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from examples.stateful_stream.running_totals import STATE_STORE, totals
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.topics import BROKER, bodies_of
from tests.spark.whole.test_with_spark import read_stream, started, wait_for
from tests.spark.writing.written import frame, rows_of, write

from twinlog.client.sync import Admin
from twinlog.spark.errors import BadOption, BadRow
from twinlog.spark.progress_metrics import LagListener, offsets_behind
from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.schema import MESSAGE_COLUMNS
from twinlog.spark.session import offsets_behind as behind_of
from twinlog.spark.session import register
from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.rows import EncodedRows, pieces_of
from twinlog.wire.properties import decode_properties

pytestmark = pytest.mark.timeout(300)


def test_a_stream_shows_how_far_it_is_behind_under_kafkas_names(spark, make_topic, tmp_path):
    topic = make_topic(queues=2)
    topic.send_numbers(10, queue=0)
    topic.send_numbers(2, queue=1)
    frame = read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=6)
    writer = frame.writeStream.format("noop").queryName("behind").option("checkpointLocation", str(tmp_path))
    query = started(writer.trigger(processingTime="1 hour"))  # one batch, then it waits
    try:
        wait_for(lambda: behind_of(query))
        # 6 of 12 rows, in proportion to the queues: 5 of 10 and 1 of 2 are left.
        wanted = {"minOffsetsBehindLatest": "1", "maxOffsetsBehindLatest": "5", "avgOffsetsBehindLatest": "3.0"}
        assert behind_of(query) == wanted
        register(spark)  # again: there is still one listener
        listener = spark._twinlog_listener
        wait_for(lambda: listener.metrics.get(str(query.id)) == wanted)
    finally:
        query.stop()
    wait_for(lambda: str(query.id) not in listener.metrics)


def test_metrics_are_those_of_our_sources_only():
    ours = {"endOffset": '{"T@b@0": 3, "T@b@1": 9}', "latestOffset": '{"T@b@0": 5, "T@b@1": 8, "T@b@2": 7}'}
    assert offsets_behind(ours) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": "3.0",
    }
    for other in ({}, {"endOffset": "5", "latestOffset": "7"}, {"endOffset": None, "latestOffset": None}):
        assert offsets_behind(other) == {}
    assert offsets_behind({"endOffset": '{"a": 1}', "latestOffset": '{"a": 1}'}) == {}
    assert LagListener().metrics == {}


def test_the_stateful_example_keeps_its_totals_over_a_restart(spark, make_topic, tmp_path):
    topic, seen = make_topic(queues=2), {}
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    try:
        for bodies in (["anna 3", "ben 1", "anna 4"], ["ben 2"]):
            for n, text in enumerate(bodies):
                name, pieces = text.split()
                topic.send(f'{{"customer": "{name}", "pieces": {pieces}}}', queue=n % 2)
            frame = totals(read_stream(spark, topic, startingOffsets="earliest"))
            writer = frame.writeStream.outputMode("update").foreachBatch(
                lambda rows, _: seen.update({row.customer: row.total for row in rows.collect()})
            )
            query = started(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True))
            assert query.awaitTermination(120)
        assert seen == {"anna": 7, "ben": 3}
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


# -- without a JVM -------------------------------------------------------------------------------------


def test_brokers_filter_by_sql(make_topic):
    topic = make_topic(queues=1)
    for n in range(10):
        topic.send(str(n), tags="odd" if n % 2 else "even")
    sql = {"subExpressionType": "SQL92", "subExpression": "TAGS = 'odd'"}
    assert topic.read(**sql) == ["1", "3", "5", "7", "9"]
    stream = topic.stream(startingOffsets="earliest", **sql)
    assert stream._options.is_filtered


def test_a_wrong_filter_is_refused_with_what_to_write(make_topic):
    topic = make_topic(queues=1)
    topic.send("1")
    with pytest.raises(BadOption, match="needs subExpression"):
        topic.read(subExpressionType="SQL92")
    wrong = {"subExpressionType": "SQL92", "subExpression": "a >"}
    with pytest.raises(BadOption, match=r"subExpression 'a >': .*SUBSCRIPTION_PARSE_FAILED"):
        topic.read(**wrong)
    stream = topic.stream(startingOffsets="earliest", **wrong)
    with pytest.raises(BadOption, match="SUBSCRIPTION_PARSE_FAILED"):
        stream.latestOffset({topic.key(): 0}, ReadAllAvailable())
    stream = topic.stream(startingOffsets="earliest", **wrong)  # a topic that appears later; a batch that is replayed
    stream._check_filter([])
    with pytest.raises(BadOption, match="SUBSCRIPTION_PARSE_FAILED"):
        stream.partitions({topic.key(): 0}, {topic.key(): 1})


def test_retries_and_dead_letters_are_named_by_their_group(make_topic):
    retries, dead = make_topic(1, "%RETRY%billing"), make_topic(1, "%DLQ%billing")
    retries.send("again")
    dead.send("given up")
    for option, told in (("retriesOf", "again"), ("deadLettersOf", "given up")):
        given = {"nameServer": retries.name_server, option: "billing"}
        assert bodies_of(QueueBatchReader(read_options(given, streaming=False), MESSAGE_COLUMNS)) == [told]


def test_rows_are_delivered_at_their_time_and_known_again(make_topic):
    topic = make_topic(queues=1)
    soon, past = datetime.now(UTC) + timedelta(seconds=2), datetime(2020, 1, 1, tzinfo=UTC)
    rows = [{"body": b"now"}, {"body": b"past", "deliverAt": past}, {"body": b"then", "deliverAt": soon}]
    result = write(topic, frame(rows), write_id="timed")
    assert (result.rows, result.requests) == (3, 3)
    assert write(topic, frame(rows), write_id="timed").skipped == 3
    limit = time.monotonic() + 60
    while topic.read() != ["now", "past", "then"]:
        assert time.monotonic() < limit, topic.read()
        time.sleep(0.2)
    assert write(topic, frame(rows), write_id="timed").skipped == 3, "after delivery too"
    (late,) = [row for row in rows_of(topic) if row["body"] == b"then"]
    assert late["storeTimestamp"] >= soon.replace(microsecond=0) - timedelta(seconds=1)


def test_the_option_deliver_at_is_for_rows_without_a_time_or_delay_of_their_own():
    options = write_options({"nameServer": "a:1", "topic": "T", "deliverAt": "2030-01-01T00:00"}, streaming=True)
    own = datetime(2031, 1, 1, tzinfo=UTC)
    rows = [{"body": b"1"}, {"body": b"2", "deliverAt": own}, {"body": b"3", "delayLevel": 2}]
    (piece,) = pieces_of(frame(rows), options, 0, 0)
    encoded = EncodedRows(piece, np.arange(3), [], options)
    times = [decode_properties(text).get("TIMER_DELIVER_MS") for text in encoded.properties.to_pylist()]
    assert times == ["1893456000000", "1924992000000", None]
    assert (encoded.timers.tolist(), encoded.delays.tolist()) == ([True, True, False], [False, False, True])
    assert encoded.alone.all()
    both = [{"body": b"1"}, {"body": b"2", "deliverAt": own, "delayLevel": 1}]
    (piece,) = pieces_of(frame(both), options, 0, 0)
    with pytest.raises(BadRow, match="row 1 of partition 0: it has a delayLevel and a deliverAt"):
        EncodedRows(piece, np.arange(2), [], options)


def test_a_group_that_only_commits_has_a_retry_topic_by_which_operators_find_it(make_topic):
    topic = make_topic(queues=1)
    topic.send("1", "2")
    topic.create_group("watched")
    stream = topic.stream(startingOffsets="earliest", consumerGroup="watched", commitOffsetsToGroup="true")
    stream.latestOffset({topic.key(): 1}, ReadAllAvailable())
    with Admin(topic.name_server) as admin:
        assert list(admin.topic_masters("%RETRY%watched")) == [BROKER]
