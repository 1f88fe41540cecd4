"""Streams planned and read without a JVM: what Spark calls, in the order in which it calls it."""

import json
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.spark.topics import bodies_of, numbers

from twinlog.client import NoRoute
from twinlog.client.errors import BrokerRefused
from twinlog.client.sync import Admin, PullConsumer
from twinlog.spark.errors import BadOption, DataLoss, SparkSourceError
from twinlog.spark.reading.brokers import stream_reader
from twinlog.wire.codes import RequestCode, ResponseCode

ALL = ReadAllAvailable()


def read_batch(stream, start, end):
    return bodies_of(stream, list(stream.partitions(start, end)))


def test_batches_follow_each_other(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    stream = topic.stream(startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert (start, end) == ({topic.key(): 0}, {topic.key(): 5})
    assert read_batch(stream, start, end) == numbers(5)
    topic.send_numbers(3, start=5)
    assert read_batch(stream, end, stream.latestOffset(end, ALL)) == numbers(3, 5)


def test_a_reader_can_be_pickled_after_it_has_asked(make_topic):
    topic = make_topic()
    stream = topic.stream()
    stream.latestOffset(stream.initialOffset(), ALL)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.initialOffset() == stream.initialOffset()


def test_an_idle_trigger_gives_the_same_text(make_topic):
    topic = make_topic(queues=12)
    topic.send_numbers(3)
    stream = topic.stream(startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    again = stream.latestOffset(json.loads(json.dumps(end)), ALL)
    assert json.dumps(end) == json.dumps(again)
    assert list(end) == sorted(end)
    assert all(type(offset) is int for offset in end.values())


def test_initial_offsets_are_the_same_however_often_spark_asks(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    stream = topic.stream()
    first = stream.initialOffset()
    topic.send_numbers(5, start=5)
    assert stream.initialOffset() == first == {topic.key(): 5}


def test_initial_offsets_are_kept_for_a_replay(make_topic, tmp_path):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    place = tmp_path / "query"
    first = topic.stream(initialOffsetsLocation=place).initialOffset()
    topic.send_numbers(5, start=5)
    assert topic.stream(initialOffsetsLocation=place).initialOffset() == first
    assert topic.stream(initialOffsetsLocation=tmp_path / "other").initialOffset() == {topic.key(): 10}


def test_initial_offsets_that_cannot_be_kept_or_read_stop_the_query(make_topic, tmp_path):
    topic = make_topic(queues=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkSourceError, match="cannot be kept"):
        topic.stream(initialOffsetsLocation=tmp_path / "file" / "below").initialOffset()
    (tmp_path / "initial-offsets.json").write_text("[")
    with pytest.raises(SparkSourceError, match="cannot be read"):
        topic.stream(initialOffsetsLocation=tmp_path).initialOffset()
    with pytest.raises(BadOption, match="without a JVM"):
        topic.stream(initialOffsetsLocation="hdfs://host/place")


def test_the_default_checkpoint_location_keeps_offsets_while_a_first_batch_is_unfinished(make_topic, tmp_path):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    first = topic.stream(checkpoints=str(tmp_path)).initialOffset()
    query = tmp_path / "some-query"
    (query / "offsets").mkdir(parents=True)
    (query / "commits").mkdir()
    (query / "offsets" / "0").write_text("v1")
    topic.send_numbers(5, start=5)
    assert topic.stream(checkpoints=str(tmp_path)).initialOffset() == first
    (query / "commits" / "0").write_text("v1")  # done: the next start is that of another query
    assert topic.stream(checkpoints=str(tmp_path)).initialOffset() == {topic.key(): 10}


def test_a_stream_that_does_not_save_its_start_warns_about_the_risk(make_topic, caplog, tmp_path):
    topic = make_topic(queues=1)
    topic.stream().initialOffset()
    assert "may be lost; set initialOffsetsLocation" in caplog.text
    caplog.clear()
    topic.stream(initialOffsetsLocation=tmp_path).initialOffset()
    topic.stream(startingOffsets=topic.json(q0=0)).initialOffset()
    assert "may be lost" not in caplog.text


def test_a_batch_that_would_end_before_its_start_is_refused(make_topic):
    topic = make_topic(queues=1)
    with pytest.raises(DataLoss, match="start at 350 and end at 100"):
        topic.stream().partitions({topic.key(): 350}, {topic.key(): 100})


def test_a_replay_plans_and_reads_the_same(make_topic):
    topic = make_topic()
    topic.send_numbers(40, queue=0)
    topic.send_numbers(40, queue=1, start=40)
    stream = topic.stream(startingOffsets="earliest", minPartitions=5)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(33))
    topic.send_numbers(10, queue=0, start=100)
    again = topic.stream(minPartitions=5)
    plans = [[part.value for part in one.partitions(start, end)] for one in (stream, again)]
    assert plans[0] == plans[1]
    assert read_batch(stream, start, end) == read_batch(again, start, end)


def test_a_limit_is_shared_by_the_queues(make_topic):
    topic = make_topic()
    topic.send_numbers(90, queue=0)
    topic.send_numbers(10, queue=1)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger=20)
    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxRows(20)) == {topic.key(0): 18, topic.key(1): 2}
    assert stream.latestOffset(stream.initialOffset(), ALL) == {topic.key(0): 90, topic.key(1): 10}


def test_a_batch_waits_for_enough_messages_but_not_for_ever(make_topic, monkeypatch):
    topic = make_topic(queues=1)
    topic.send_numbers(3)
    stream = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    now = [0.0]
    monkeypatch.setattr(stream_reader, "monotonic_ms", lambda: now[0])
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert first == {topic.key(): 3}  # the first batch does not wait
    topic.send_numbers(3, start=3)
    now[0] = 59_000
    assert stream.latestOffset(first, limit) == first
    assert stream.latestOffset(first, ALL) == {topic.key(): 6}
    now[0] = 200_000
    assert stream.latestOffset(first, limit) == {topic.key(): 6}
    now[0] = 200_001
    topic.send_numbers(12, start=6)
    assert stream.latestOffset({topic.key(): 6}, limit) == {topic.key(): 18}


def test_available_now_ends_where_the_queues_ended_when_it_began(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(25)
    stream = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger=8, maxOffsetsPerTrigger=10)
    stream.prepareForTriggerAvailableNow()
    topic.send_numbers(5, start=25)
    offsets = [stream.initialOffset()]
    while (end := stream.latestOffset(offsets[-1], ReadMaxRows(10))) != offsets[-1]:
        offsets.append(end)
    assert [offset[topic.key()] for offset in offsets] == [0, 10, 20, 25]
    assert stream.reportLatestOffset() == {topic.key(): 30}


def test_a_new_queue_is_read_from_its_first_message(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(2)
    stream = topic.stream(startingOffsets="latest")
    start = stream.initialOffset()
    topic.resize(2)
    topic.send_numbers(3, queue=1, start=10)
    found = stream.latestOffset(start, ALL)
    assert found == {topic.key(0): 2, topic.key(1): 0}
    assert read_batch(stream, start, found) == []
    end = stream.latestOffset(found, ALL)
    assert read_batch(stream, found, end) == numbers(3, 10)


def test_available_now_finds_a_new_queue_too(make_topic):
    topic = make_topic(queues=1)
    start = topic.stream(startingOffsets="latest").initialOffset()
    topic.resize(2)
    topic.send_numbers(3, queue=1)
    stream = topic.stream()
    stream.prepareForTriggerAvailableNow()
    found = stream.latestOffset(start, ALL)
    end = stream.latestOffset(found, ALL)
    assert read_batch(stream, found, end) == numbers(3)
    assert stream.latestOffset(end, ALL) == end


def test_a_queue_that_is_gone_is_a_loss_unless_forgiven(make_topic):
    topic = make_topic(queues=2)
    topic.send_numbers(3, queue=1)
    start = topic.stream(startingOffsets="earliest").initialOffset()
    topic.resize(1)
    with pytest.raises(DataLoss, match="queue 1 offset 0: the queue is gone"):
        topic.stream().latestOffset(start, ALL)
    # Its place is kept, in case it comes back.
    assert topic.stream(failOnDataLoss="false").latestOffset(start, ALL) == start


@pytest.mark.parametrize("now", [False, True])
def test_a_topic_that_is_no_longer_named_is_not_called_gone(make_topic, now):
    before, after = make_topic(queues=1), make_topic(queues=1)
    start = before.stream(startingOffsets="earliest").initialOffset()
    stream = after.stream()
    if now:
        stream.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f"topic {before.name} .*the options do not name it any more: name its topic"):
        stream.latestOffset(start, ALL)


def test_a_topic_that_is_gone_is_a_loss(make_topic):
    topic = make_topic(queues=1)
    stream = topic.stream(startingOffsets="earliest")
    start = stream.initialOffset()
    with Admin(topic.name_server) as admin:
        admin.delete_topic(topic.name)
    with pytest.raises(DataLoss, match=f"topic {topic.name}: it is gone"):
        stream.latestOffset(start, ALL)


def test_a_loss_that_is_allowed_is_logged_once_until_it_is_back(make_topic, caplog):
    topic = make_topic(queues=2)
    topic.send_numbers(2, queue=1)
    stream = topic.stream(startingOffsets="earliest", failOnDataLoss="false")
    at = stream.latestOffset(stream.initialOffset(), ALL)

    def told_by(queues):
        topic.resize(queues)
        caplog.clear()
        for _ in range(3):
            assert stream.latestOffset(dict(at), ALL) == at
        return caplog.text.count("the queue is gone")

    assert [told_by(1), told_by(1), told_by(2), told_by(1)] == [1, 0, 0, 1]


def test_available_now_goes_on_without_a_topic_that_is_gone_if_that_is_forgiven(make_topic):
    gone, kept = make_topic(queues=1), make_topic(queues=1)
    for topic in (gone, kept):
        topic.send_numbers(3)
    options = {"subscribe": f"{gone.name},{kept.name}", "startingOffsets": "earliest"}
    start = kept.stream(**options).initialOffset()
    with Admin(gone.name_server) as admin:
        admin.delete_topic(gone.name)
    for known, error in ((start, DataLoss), ({kept.key(): 0}, NoRoute)):  # a loss, or a wrong option
        strict = kept.stream(**options)
        strict.prepareForTriggerAvailableNow()
        with pytest.raises(error, match=gone.name):
            strict.latestOffset(known, ALL)
    forgiving = kept.stream(**options, failOnDataLoss="false")
    forgiving.prepareForTriggerAvailableNow()
    end = forgiving.latestOffset(start, ALL)
    assert end == {gone.key(): 0, kept.key(): 3}
    assert read_batch(forgiving, start, end) == numbers(3)


def test_a_queue_that_went_back_is_a_loss(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(3)
    with pytest.raises(DataLoss, match="the stream was at 8, the queue now ends at 3"):
        topic.stream().latestOffset({topic.key(): 8}, ALL)
    # Forgiven, it starts anew with what the queue holds.
    forgiving = topic.stream(failOnDataLoss="false")
    found = forgiving.latestOffset({topic.key(): 8}, ALL)
    assert found == {topic.key(): 0}
    assert read_batch(forgiving, {topic.key(): 8}, found) == []
    assert read_batch(forgiving, found, forgiving.latestOffset(found, ALL)) == numbers(3)


def test_the_next_offset_is_committed_to_the_group(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(7)
    topic.create_group("spark-told")
    stream = topic.stream(startingOffsets="earliest", consumerGroup="spark-told", commitOffsetsToGroup="true")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    with PullConsumer(topic.name_server, "spark-told", register=False) as consumer:
        assert consumer.committed(topic.queue()) == 0
        stream.latestOffset(end, ALL)  # the trigger after the batch, idle or not
        assert consumer.committed(topic.queue()) == 7


def test_a_group_that_does_not_exist_is_an_error_at_the_start(make_topic, monkeypatch):
    topic = make_topic(queues=1)
    stream = topic.stream(startingOffsets="earliest", consumerGroup="spark-nobody", commitOffsetsToGroup="true")
    start = stream.initialOffset()

    def refuse(*_):
        raise BrokerRefused(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no", "b:1")

    monkeypatch.setattr("twinlog.spark.cluster.Cluster.commit", refuse)
    with pytest.raises(BadOption, match=r"commitOffsetsToGroup: .*create it with `twinlog admin updateSubGroup`"):
        stream.latestOffset(start, ALL)


def test_a_commit_that_fails_does_not_stop_the_query(make_topic, monkeypatch, caplog):
    topic = make_topic(queues=1)
    stream = topic.stream(startingOffsets="earliest", consumerGroup="spark-untold", commitOffsetsToGroup="true")
    start = stream.initialOffset()

    def refuse(*_):
        raise SparkSourceError("no")

    monkeypatch.setattr("twinlog.spark.cluster.Cluster.commit", refuse)
    assert stream.latestOffset(start, ALL) == start
    assert "were not published" in caplog.text
