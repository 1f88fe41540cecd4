"""A broker that is away is waited for: nothing is lost, nothing comes twice, and the others go on meanwhile."""

from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.own_time import own_time
from tests.spark.second_broker import SecondBroker
from tests.spark.topics import bodies_of, numbers

from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark import broker_wait, cluster
from twinlog.spark.broker_wait import AwayBrokers
from twinlog.spark.errors import BrokerAway, DataLoss
from twinlog.spark.reading.brokers import fetch
from twinlog.wire.bodies import MessageQueue

ALL = ReadAllAvailable()


@pytest.fixture
def two(broker, make_topic, tmp_path, monkeypatch):
    """A topic of one queue on each of two brokers, of which the second can be stopped."""
    monkeypatch.setattr(broker_wait, "PAUSE_S_FIRST", 0.01)
    monkeypatch.setattr(cluster, "ASK_AGAIN_S", 0.01)
    second = SecondBroker(broker.namesrv_address, tmp_path / "second").start()
    topic = make_topic(queues=1)
    second.add_topic(topic.name)
    yield topic, second
    second.stop()


def send(topic, second, *bodies):
    with Producer(topic.name_server, "two-brokers") as producer:
        for body in bodies:
            producer.send(Outgoing(topic.name, body.encode()), queue=MessageQueue(topic.name, second.name, 0))


def batch(stream, start):
    end = stream.latestOffset(start, ALL)
    return end, bodies_of(stream, list(stream.partitions(start, end)))


@pytest.mark.parametrize("by", ["topic", "pattern", "assign"])
def test_a_stream_goes_on_without_a_broker_and_with_it_when_it_is_back(two, by):
    topic, second = two
    given = {
        "topic": {},
        "pattern": {"subscribePattern": topic.name},
        "assign": {"assign": f'{{"{topic.name}":{{"broker-dev":[0],"{second.name}":[0]}}}}'},
    }[by]
    stream = topic.stream(startingOffsets="earliest", **given)
    at = stream.initialOffset()
    topic.send("0")
    send(topic, second, "1")
    at, read = batch(stream, at)
    assert sorted(read) == ["0", "1"]
    send(topic, second, "3")
    second.stop()
    topic.send("2")
    for expected in (["2"], []):  # the second is not there; the first goes on
        at, read = batch(stream, at)
        assert read == expected
    second.start()
    at, read = batch(stream, at)
    assert read == ["3"]
    assert stream.latestOffset(at, ALL) == at


def test_a_topic_whose_only_broker_is_away_is_not_gone_and_one_that_was_deleted_is(two):
    topic, second = two
    name = f"{topic.name}Alone"
    second.add_topic(name)
    stream = topic.stream(subscribe=name, startingOffsets="earliest")
    at = stream.initialOffset()
    second.stop()
    assert stream.latestOffset(at, ALL) == at
    second.start()
    send_to = MessageQueue(name, second.name, 0)
    with Producer(topic.name_server, "alone") as producer:
        producer.send(Outgoing(name, b"1"), queue=send_to)
    at, read = batch(stream, at)
    assert read == ["1"]
    with Admin(topic.name_server) as admin:
        admin.delete_topic(name)
    with pytest.raises(DataLoss, match=f"topic {name}: it is gone"):
        stream.latestOffset(at, ALL)


def test_a_broker_that_stays_away_ends_the_stream_with_the_name_of_the_option(two):
    topic, second = two
    stream = topic.stream(startingOffsets="earliest", brokerWait=0)
    at = stream.initialOffset()
    second.stop()
    with pytest.raises(BrokerAway, match=rf"broker {second.name} has been away .* set brokerWait"):
        stream.latestOffset(at, ALL)


@pytest.mark.parametrize("by", ["topic", "alone", "assign"])
def test_available_now_waits_for_a_broker_that_the_checkpoint_knows(two, monkeypatch, by):
    topic, second = two
    topic.send("0")
    send(topic, second, "1")
    given, expected = {}, ["0", "1"]
    if by == "alone":
        name = f"{topic.name}Alone"
        second.add_topic(name)
        with Producer(topic.name_server, "alone") as producer:
            producer.send(Outgoing(name, b"1"), queue=MessageQueue(name, second.name, 0))
        given, expected = {"subscribe": name}, ["1"]
    elif by == "assign":
        given = {"assign": f'{{"{topic.name}":{{"broker-dev":[0],"{second.name}":[0]}}}}'}
    at = topic.stream(startingOffsets="earliest", **given).initialOffset()
    second.stop()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            second.start()

    monkeypatch.setattr("twinlog.spark.reading.brokers.queue_ends.time.sleep", pause)
    stream = topic.stream(**given)
    stream.prepareForTriggerAvailableNow()
    at, read = batch(stream, at)
    assert sorted(read) == expected
    assert len(pauses) >= 3


def test_a_task_waits_for_its_broker_and_reads_each_row_once(two, monkeypatch):
    topic, second = two
    send(topic, second, *numbers(40))
    stream = topic.stream(startingOffsets="earliest", pullBatchSize=4, pullDepth=1)
    start = stream.initialOffset()
    parts = list(stream.partitions(start, stream.latestOffset(start, ALL)))
    real, pauses = fetch.QueueFetch._take, []

    def take(self, pull, answer):
        real(self, pull, answer)
        if pull.offset == 16:
            second.stop()  # amid the task

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2 * fetch._TRIES:
            second.start()

    monkeypatch.setattr(fetch.QueueFetch, "_take", take)
    monkeypatch.setattr(fetch, "time", own_time(sleep=pause))
    assert bodies_of(stream, parts) == numbers(40)
    assert len(pauses) >= 2 * fetch._TRIES


def test_a_batch_is_planned_when_the_broker_is_back(two, monkeypatch):
    topic, second = two
    send(topic, second, "1")
    reader = topic.reader(subscribe=topic.name)
    real, pauses = cluster.Cluster.queues, []

    def queues(self, topics):
        found = real(self, topics)
        second.stop()  # behind the look at the route
        monkeypatch.setattr(cluster.Cluster, "queues", real)
        return found

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 6:
            second.start()

    monkeypatch.setattr(cluster.Cluster, "queues", queues)
    monkeypatch.setattr(broker_wait, "time", own_time(sleep=pause))
    assert bodies_of(reader) == ["1"]


def test_the_wait_is_counted_from_when_a_broker_was_first_missed(caplog):
    absences = AwayBrokers(1000)
    absences.note({"a": "refused"}, 0)
    absences.note({"a": "refused", "b": "refused"}, 999)
    absences.note({"b": "refused"}, 1500)  # a is back
    absences.note({"a": "refused", "b": "refused"}, 1998)
    assert caplog.text.count("a broker is away") == 3
    with pytest.raises(BrokerAway, match=r"broker b has been away for 1 s \(refused\): .*brokerWait"):
        absences.note({"a": "refused", "b": "refused"}, 1999)


@pytest.fixture
def behind(two, monkeypatch):
    """A topic with ten messages on its master, of which a replica has eight; `is_up`: does the master answer."""
    topic, second = two
    topic.send(*numbers(10))
    send(topic, second, *numbers(8))
    real, is_up = cluster.Cluster.route, [True]

    def route(self, name, *, fresh=False):
        found = real(self, name, fresh=fresh)
        master = found.brokers["broker-dev"][0] if is_up[0] else "127.0.0.1:1"
        queues = tuple(queue for queue in found.readable if queue.broker_name == "broker-dev")
        return replace(found, brokers={"broker-dev": {0: master, 1: second.address}}, readable=queues)

    monkeypatch.setattr(cluster.Cluster, "route", route)
    return topic, is_up


READ_ANY = {"readFrom": "any", "fetchOffset.retryIntervalMs": 1, "pullTimeoutMs": 50}


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("read_from", ["any", "slave"])
def test_a_replica_that_is_behind_makes_no_new_topic(behind, read_from, fails):
    topic, is_up = behind
    start = {topic.key(): 10}
    stream = topic.stream(failOnDataLoss=fails, **{**READ_ANY, "readFrom": read_from})
    for is_up[0] in (False, True):
        assert stream.latestOffset(start, ALL) == start
    if read_from == "any":
        topic.send("10")
        assert batch(stream, start)[1] == ["10"]


def test_a_master_that_stays_away_is_named_when_its_replica_is_behind(behind):
    topic, is_up = behind
    is_up[0] = False
    stream = topic.stream(brokerWait=0, **READ_ANY)
    with pytest.raises(BrokerAway, match=r"broker broker-dev has been away .*its replica is behind"):
        stream.latestOffset({topic.key(): 10}, ALL)


def test_available_now_waits_for_the_master_when_the_replica_has_less_than_was_read(behind, monkeypatch):
    topic, is_up = behind
    is_up[0] = False
    stream = topic.stream(**READ_ANY)
    stream.prepareForTriggerAvailableNow()
    topic.send("10")
    monkeypatch.setattr("twinlog.spark.reading.brokers.queue_ends.time.sleep", lambda _: is_up.__setitem__(0, True))
    assert batch(stream, {topic.key(): 10})[1] == ["10"]


@pytest.mark.parametrize("start", [0, 9])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_task_waits_for_the_master_when_the_replica_is_behind(behind, monkeypatch, start, fails):
    topic, is_up = behind
    stream = topic.stream(failOnDataLoss=fails, pullBatchSize=4, **READ_ANY)
    parts = list(stream.partitions({topic.key(): start}, {topic.key(): 10}))
    is_up[0] = False
    with pytest.raises(BrokerAway, match=r"offset [89]: .* has offsets up to 8 .*its master is away.*brokerWait"):
        bodies_of(topic.stream(brokerWait=0, failOnDataLoss=fails, pullDepth=1, **READ_ANY), parts)
    real, looks = fetch.QueueFetch._find_master, []

    def look(self, error):
        looks.append(error)
        is_up[0] = len(looks) == 3
        real(self, error)

    monkeypatch.setattr(fetch.QueueFetch, "_find_master", look)
    assert bodies_of(stream, parts) == numbers(10 - start, start)
    assert len(looks) == 3
