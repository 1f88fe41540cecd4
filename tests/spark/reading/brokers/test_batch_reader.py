"""Batch reads from a running broker, without a JVM: partitions() and read() are plain Python."""

import socket
import threading
import time
from dataclasses import replace

import pytest
from pyspark.sql.datasource import InputPartition
from tests.spark.topics import BROKER, bodies_of, numbers

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import ClientError, MessageQueue, NoNameServer, NoRoute, Outgoing
from twinlog.client.sync import Admin, Producer, PullConsumer
from twinlog.spark import remoting
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption, BrokerAway, CannotRead, DataLoss
from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.pull_window import PullWindow
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.spark.schema import MESSAGE_COLUMNS, arrow_schema
from twinlog.wire.bodies import ClusterInfo
from twinlog.wire.codes import RequestCode


def test_a_topic_is_read_whole(make_topic):
    topic = make_topic()
    topic.send_numbers(150, queue=0)
    topic.send_numbers(50, queue=1, start=150)
    assert topic.read() == numbers(200)


def test_every_batch_has_the_schema_of_the_columns_asked_for(make_topic):
    topic = make_topic()
    topic.send("one", tags="t")
    columns = {"storeSize": "int", "topic": "string", "properties": "map<string,string>"}
    for wanted in (MESSAGE_COLUMNS, columns):
        reader = topic.reader(wanted)
        for part in reader.partitions():
            assert all(batch.schema.equals(arrow_schema(wanted)) for batch in reader.read(part))


def test_an_empty_topic_has_no_rows(make_topic):
    reader = make_topic().reader()
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes of a plan without partitions


def test_offsets_by_position(make_topic):
    topic = make_topic()
    topic.send_numbers(20, queue=0)
    topic.send_numbers(10, queue=1, start=20)
    assert topic.read(startingOffsets=topic.json(q0=18, q1=-2), endingOffsets=topic.json(q0=-1, q1=2)) == [
        "18", "19", "20", "21",
    ]  # fmt: skip


def test_offsets_must_name_each_queue_and_no_other(make_topic):
    topic = make_topic()
    with pytest.raises(BadOption, match=r"lacks .* queue 1"):
        topic.reader(startingOffsets=topic.json(q0=0)).partitions()
    with pytest.raises(BadOption, match=r"queue 2 is not read here; the queues are .* queues 0,1"):
        topic.reader(startingOffsets=topic.json(q0=0, q1=0, q2=0)).partitions()


def test_offsets_by_time(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(3)
    time.sleep(0.01)
    between = int(time.time() * 1000)
    time.sleep(0.01)
    topic.send_numbers(3, start=3)
    assert topic.read(startingTimestamp=between) == ["3", "4", "5"]
    assert topic.read(endingTimestamp=between) == ["0", "1", "2"]
    assert topic.read(startingOffsetsByTimestamp=topic.json(q0=between)) == ["3", "4", "5"]
    assert topic.read(endingOffsetsByTimestamp=topic.json(q0=between)) == ["0", "1", "2"]


def test_a_time_behind_the_last_message_is_an_error_or_the_end(make_topic):
    topic = make_topic(queues=1)
    topic.send("one")
    late = int(time.time() * 1000) + 60_000
    with pytest.raises(BadOption, match=f"no message stored at or after {late}.*Strategy=latest"):
        topic.read(startingTimestamp=late)
    assert topic.read(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []


def test_reading_starts_at_the_offsets_of_a_group(make_topic):
    topic = make_topic()
    topic.send_numbers(10, queue=0)
    topic.send_numbers(5, queue=1, start=10)
    topic.create_group("spark-starts-here")
    with PullConsumer(topic.name_server, "spark-starts-here") as consumer:
        consumer.commit(topic.queue(0), 8)
    # In queue 1 the group has never committed: it starts at the oldest message.
    assert topic.read(startingOffsets="group", consumerGroup="spark-starts-here") == ["8", "9", *numbers(5, 10)]


def test_queues_are_assigned(make_topic):
    topic = make_topic()
    topic.send_numbers(3, queue=0)
    topic.send_numbers(3, queue=1, start=3)
    assert topic.read(assign=f'{{"{topic.name}":{{"{BROKER}":[1]}}}}') == ["3", "4", "5"]
    with pytest.raises(BadOption, match=r"queue 7 does not exist; the route knows .* queues 0,1"):
        topic.read(assign=f'{{"{topic.name}":{{"{BROKER}":[7]}}}}')


def test_a_pattern_takes_topics_and_leaves_the_brokers_own(make_topic):
    one, two = make_topic(name="Pattern-one"), make_topic(name="Pattern-two")
    make_topic(name="NotPattern-one").send("no")
    one.send("1")
    two.send("2")
    assert one.read(subscribePattern="Pattern-.*") == ["1", "2"]
    reader = one.reader(subscribePattern=".*")
    assert {part.value.queue.topic for part in reader.partitions()} >= {"Pattern-one", "NotPattern-one"}
    assert not any(part.value.queue.topic.startswith(("%", "RMQ_SYS", "rmq_sys")) for part in reader.partitions())
    assert one.reader(subscribePattern="Nothing-.*").partitions() == []


def test_a_list_of_topics_is_read(make_topic):
    one, two = make_topic(), make_topic()
    one.send("1")
    two.send("2")
    assert one.read(subscribe=f"{one.name}, {two.name}") in (["1", "2"], ["2", "1"])


def test_the_broker_filters_by_tag(make_topic):
    topic = make_topic(queues=1)
    for n in range(60):
        topic.send(str(n), tags="even" if n % 2 == 0 else "odd")
    assert topic.read(subExpression="even") == [str(n) for n in range(0, 60, 2)]
    assert topic.read(subExpression="even || odd", minPartitions=3) == numbers(60)
    assert topic.read(subExpression="none") == []


def test_tags_with_the_same_hash_are_distinguished(make_topic):
    topic = make_topic(queues=1)
    topic.send("no", tags="BB")  # its Java hash is that of Aa
    topic.send("yes", tags="Aa")
    assert topic.read(subExpression="Aa") == ["yes"]


def test_partitions_are_split_exactly(make_topic):
    topic = make_topic()
    topic.send_numbers(90, queue=0)
    topic.send_numbers(10, queue=1, start=90)
    many, small = topic.reader(minPartitions=5), topic.reader(maxRecordsPerPartition=25)
    assert [len(part.value) for part in many.partitions()] == [22, 23, 22, 23, 10]
    assert max(len(part.value) for part in small.partitions()) <= 25
    assert bodies_of(many) == bodies_of(small) == numbers(100)


@pytest.mark.parametrize(("batch", "depth"), [(1, 1), (7, 3), (32, 8), (1000, 2)])
def test_pulls_of_any_size_and_depth_give_the_same(make_topic, batch, depth):
    topic = make_topic(queues=1)
    topic.send_numbers(200)
    assert topic.read(pullBatchSize=batch, pullDepth=depth) == numbers(200)


def test_one_request_brings_more_than_javas_32_messages(make_topic, monkeypatch):
    topic, counts = make_topic(queues=1), []
    topic.send_numbers(200)
    answer = PullWindow.answer

    def counted(window, pull, next_offset, body=None):
        counts.append(next_offset - pull.offset)
        return answer(window, pull, next_offset, body)

    monkeypatch.setattr(PullWindow, "answer", counted)
    assert topic.read(minPartitions=1) == numbers(200)
    assert counts == [200]


def test_messages_of_batches_stored_whole_are_read_one_by_one(make_topic):
    topic = make_topic(queues=1)
    topic.store_batches_whole()
    for start in range(0, 20, 5):
        topic.send_numbers(5, start=start)
    assert topic.read() == numbers(20)
    assert topic.read(minPartitions=7, pullBatchSize=2) == numbers(20)
    assert topic.read(startingOffsets=topic.json(q0=3), endingOffsets=topic.json(q0=13)) == numbers(10, 3)


def test_credentials_sign_every_request(make_topic, monkeypatch):
    signed = []
    real = remoting.sign
    monkeypatch.setattr(remoting, "sign", lambda command, keys: (signed.append(command.code), real(command, keys)))
    topic = make_topic(queues=1)
    topic.send_numbers(40)
    assert topic.read(accessKey="me", secretKey="hidden") == numbers(40)
    assert {105, 30, 31, 11} <= set(signed)


def test_a_broker_is_read_through_tls(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(40)
    assert topic.read(rocketmq__useTLS="true", rocketmq__tls__verify="false") == numbers(40)
    with pytest.raises(NoNameServer, match="CERTIFICATE_VERIFY_FAILED"):
        topic.read(rocketmq__useTLS="true", fetchOffset__numRetries=0)


# -- what is not there ---------------------------------------------------------------------------------


def test_a_missing_topic_says_how_to_create_it(make_topic):
    with pytest.raises(NoRoute, match="updateTopic -t Nowhere"):
        make_topic().reader(subscribe="Nowhere").partitions()


def test_a_name_server_that_does_not_answer_is_named(make_topic):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NoNameServer, match=f"127.0.0.1:{port}"):
        make_topic().reader(nameServer=f"127.0.0.1:{port}").partitions()


def test_a_server_of_another_kind_does_not_hang_the_query(make_topic):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            connection.recv(10)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        options = {"nameServer": f"127.0.0.1:{server.getsockname()[1]}", "fetchOffset__numRetries": 0}
        with pytest.raises(NoNameServer, match="the RocketMQ protocol"):
            make_topic().reader(**options).partitions()
        thread.join()


def test_offsets_in_the_future_are_a_loss_unless_forgiven(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    with pytest.raises(DataLoss, match=r"queue 0 offset 9: .*holds offsets 0 to 5, this offset does not exist yet"):
        topic.read(startingOffsets=topic.json(q0=9))
    assert topic.read(startingOffsets=topic.json(q0=9), failOnDataLoss="false") == []
    with pytest.raises(DataLoss, match="ends at 5, before the ending offset"):
        topic.read(endingOffsets=topic.json(q0=9))


def test_messages_that_vanish_between_plan_and_read_are_a_loss_unless_forgiven(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    (part,) = topic.reader().partitions()
    future = InputPartition(type(part.value)(part.value.queue, 3, 9))
    with pytest.raises(DataLoss, match=r"offset 5|holds offsets 0 to 5"):
        bodies_of(topic.reader(pullBatchSize=1, pullDepth=6), [future])
    assert bodies_of(topic.reader(failOnDataLoss="false", pullTimeoutMs=100, pullBatchSize=1), [future]) == ["3", "4"]


def test_a_broker_that_brings_no_more_is_an_error_with_its_place(make_topic):
    topic = make_topic(queues=1)
    topic.send_numbers(5)
    (part,) = topic.reader().partitions()
    future = InputPartition(type(part.value)(part.value.queue, 5, 6))
    with pytest.raises(CannotRead, match=r"queue 0 offset 5: .* has offsets up to 5 and brought no more in 200 ms"):
        bodies_of(topic.reader(pullTimeoutMs=200), [future])


def test_a_replica_is_read_only_if_there_is_one(make_topic):
    topic = make_topic(queues=1)
    topic.send("one")
    with pytest.raises(CannotRead, match=r"no slave is registered .broker ids: 0 at .*readFrom=any"):
        topic.read(readFrom="slave")  # without a wait: the master is there, and no replica may ever be
    assert topic.read(readFrom="any") == ["one"]


@pytest.fixture
def with_brokers(make_topic, monkeypatch):
    """A topic whose route names the given brokers by id; `live` stands for the one that runs."""

    def make(**brokers):
        topic = make_topic(queues=1)
        topic.send("one")
        real = Cluster.route

        def route(self, name, *, fresh=False):
            found = real(self, name, fresh=fresh)
            live = found.brokers[BROKER][0]
            with socket.create_server(("127.0.0.1", 0)) as free:
                dead = f"127.0.0.1:{free.getsockname()[1]}"
            addresses = {int(name[2:]): live if kind == "live" else dead for name, kind in brokers.items()}
            return replace(found, brokers={BROKER: addresses})

        monkeypatch.setattr(Cluster, "route", route)
        monkeypatch.setattr("twinlog.spark.broker_wait.PAUSE_S_FIRST", 0.01)
        return topic

    return make


def test_a_replica_is_read_when_asked_for(with_brokers):
    topic = with_brokers(id0="dead", id1="live")
    assert topic.read(readFrom="slave") == ["one"]
    assert topic.read(readFrom="any") == ["one"]  # the master does not answer
    with pytest.raises(BrokerAway, match=r"cannot connect.*brokerWait"):
        topic.read(readFrom="master", fetchOffset__numRetries=1, brokerWait=0)


def test_the_master_is_read_although_there_is_a_replica(with_brokers):
    topic = with_brokers(id0="live", id1="dead")
    assert topic.read() == ["one"]
    assert topic.read(readFrom="any") == ["one"]


@pytest.mark.parametrize("role", ["master", "slave"])
def test_a_topic_is_gone_if_its_master_lacks_it_but_not_if_a_replica_does(with_brokers, monkeypatch, role):
    topic = with_brokers(**{"id0": "live"} if role == "master" else {"id0": "dead", "id1": "live"})
    reader = topic.reader(readFrom=role, failOnDataLoss="false")
    parts = reader.partitions()
    known = Cluster(read_options(topic.options(), streaming=False).cluster).route(topic.name)
    monkeypatch.setattr(Cluster, "route", lambda self, name, *, fresh=False: known)
    with Admin(topic.name_server) as admin:
        admin.delete_topic(topic.name)
    if role == "master":
        assert bodies_of(reader, parts) == []
        with pytest.raises(DataLoss, match="the topic is gone"):
            bodies_of(topic.reader(readFrom=role), parts)
    else:
        with pytest.raises(CannotRead, match=r"cannot be read after 6 tries: .* TOPIC_NOT_EXIST"):
            bodies_of(reader, parts)


def test_a_topic_that_no_broker_has_any_more_is_a_loss_unless_allowed(make_topic, monkeypatch):
    monkeypatch.setattr("twinlog.spark.broker_wait.PAUSE_S_FIRST", 0.001)
    topic = make_topic(queues=1)
    topic.send_numbers(10)
    parts = topic.reader().partitions()
    with Admin(topic.name_server) as admin:
        admin.delete_topic(topic.name)
    place = f"topic {topic.name} broker {BROKER} queue 0 offset 0"
    with pytest.raises(DataLoss, match=rf"{place}: the topic is gone .*has no route.*failOnDataLoss=false"):
        bodies_of(topic.reader(), parts)
    assert bodies_of(topic.reader(failOnDataLoss="false"), parts) == []
    monkeypatch.setattr(Cluster, "info", lambda self: ClusterInfo())  # its broker may come back, and the topic with it
    with pytest.raises(BrokerAway, match=rf"away for 0 s \({place}: .*has no route.*: start it"):
        bodies_of(topic.reader(failOnDataLoss="false", brokerWait=0), parts)


@pytest.mark.parametrize("with_answer", [False, True])
def test_a_broker_that_does_not_tell_its_offsets_is_named_with_topic_and_queue(with_brokers, monkeypatch, with_answer):
    topic = with_brokers(id0="live" if with_answer else "dead")
    told = "cannot connect to"
    if with_answer:
        told = r"refused GET_MIN_OFFSET .* with NO_PERMISSION .*: not you"
        refusal, real = remoting.Response(1, 16, "not you", {}, memoryview(b"")), remoting.BlockingConnection.ask

        def ask(self, commands, timeout_ms=None):
            return [refusal] if commands[0].code == RequestCode.GET_MIN_OFFSET else real(self, commands, timeout_ms)

        monkeypatch.setattr(remoting.BlockingConnection, "ask", ask)
    with pytest.raises((BrokerAway, ClientError), match=rf"topic {topic.name} broker {BROKER} queue 0: .*{told}"):
        topic.reader(brokerWait=0).partitions()


@pytest.fixture
def expired(tmp_path):
    """A topic with one queue whose oldest messages were deleted, and the name server."""
    settings = {"mappedFileSizeCommitLog": str(64 * 1024), "fileReservedTime": "0"}
    with EmbeddedBroker(tmp_path, settings) as broker, Producer(broker.namesrv_address) as producer:
        with Admin(broker.namesrv_address) as admin:
            admin.create_topic("Old", queues=1)
            for _ in range(300):
                producer.send(Outgoing("Old", bytes(1000)), queue=MessageQueue("Old", BROKER, 0))
            low, end = 0, time.monotonic() + 30
            while not low:  # a file written this very moment is not old yet
                assert time.monotonic() < end, "nothing was deleted"
                time.sleep(0.5)
                admin.clean(broker.broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG)
                low = admin.topic_stats("Old")[MessageQueue("Old", BROKER, 0)].min_offset
        yield {"nameServer": broker.namesrv_address, "topic": "Old"}, low


def test_expired_offsets_are_a_loss_unless_forgiven(expired):
    given, low = expired
    old = {**given, "startingOffsets": f'{{"Old":{{"{BROKER}":{{"0":0}}}}}}'}
    with pytest.raises(DataLoss, match=f"queue 0 offset 0: the queue holds offsets {low} to 300, .* expired"):
        QueueBatchReader(read_options(old, streaming=False), MESSAGE_COLUMNS).partitions()
    forgiving = QueueBatchReader(read_options({**old, "failOnDataLoss": "false"}, streaming=False), MESSAGE_COLUMNS)
    assert len(bodies_of(forgiving)) == 300 - low


def test_offsets_that_expire_before_they_are_read_are_a_loss_unless_forgiven(expired):
    given, low = expired
    planned = [InputPartition(QueueRange(MessageQueue("Old", BROKER, 0), 0, 300))]
    reader = QueueBatchReader(read_options(given, streaming=False), MESSAGE_COLUMNS)
    with pytest.raises(DataLoss, match=rf"queue 0 offset \d+: .* holds offsets {low} to 300"):
        bodies_of(reader, planned)
    forgiving = QueueBatchReader(read_options({**given, "failOnDataLoss": "false"}, streaming=False), MESSAGE_COLUMNS)
    assert len(bodies_of(forgiving, planned)) == 300 - low


def test_a_broker_that_dies_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.spark.broker_wait.PAUSE_S_FIRST", 0.01)
    with EmbeddedBroker(tmp_path) as broker, Producer(broker.namesrv_address) as producer:
        for n in range(3):
            producer.send(Outgoing("T", b"%d" % n))
        given = {"nameServer": broker.namesrv_address, "topic": "T", "brokerWait": "100ms"}
        reader = QueueBatchReader(read_options(given, streaming=False), MESSAGE_COLUMNS)
        parts = reader.partitions()
        assert parts
    for connection in list(remoting._connections.values()):
        connection.close()
    with pytest.raises(BrokerAway, match=r"away .*topic T broker broker-dev queue \d offset 0.*brokerWait"):
        bodies_of(reader, parts)


def test_a_connection_lost_in_the_middle_is_made_again(make_topic, monkeypatch):
    monkeypatch.setattr("twinlog.spark.broker_wait.PAUSE_S_FIRST", 0.01)
    topic = make_topic(queues=1)
    topic.send_numbers(300)
    real, count = remoting.BlockingConnection.receive, [0]

    def receive(self, *arguments):
        count[0] += 1
        if count[0] in (4, 6):
            self._socket.shutdown(socket.SHUT_RDWR)
        return real(self, *arguments)

    reader = topic.reader(pullDepth=2, pullBatchSize=32)
    parts = reader.partitions()
    monkeypatch.setattr(remoting.BlockingConnection, "receive", receive)
    assert bodies_of(reader, parts) == numbers(300)
    assert count[0] > 6


def test_a_task_that_is_stopped_early_leaves_no_answers_for_the_next(make_topic):
    topic = make_topic(queues=1)
    topic.send(*[b"x" * 200_000] * 60)
    reader = topic.reader(pullBatchSize=2)
    (part,) = reader.partitions()
    rows = reader.read(part)
    next(rows)
    rows.close()
    assert len(topic.read()) == 60
