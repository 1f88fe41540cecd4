"""Writing to a real broker, without a JVM."""

import functools
import pickle
import socket
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.own_time import own_time
from tests.spark.second_broker import SecondBroker
from tests.spark.topics import BROKER, numbers
from tests.spark.writing.written import NamedTopic, frame, numbered, rows_of, task, write

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client.errors import NoRoute
from twinlog.client.sending.outgoing import queue_for_key
from twinlog.client.sync import Admin
from twinlog.net.errors import ConnectionLost, NetError
from twinlog.spark import remoting
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import CannotWrite
from twinlog.spark.remoting import Response
from twinlog.spark.source import RocketmqSource
from twinlog.spark.writing import sender as sender_module
from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.sender import Sender
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import decode_header
from twinlog.wire.frame import JSON

pytestmark = pytest.mark.timeout(120)
SENDS = (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2)


def bodies(rows):
    return [row["body"].decode() for row in rows]


def test_what_is_written_is_read_back(make_topic):
    topic = make_topic(queues=3)
    result = write(topic, numbered(1000), numbered(500, 1000))
    rows = rows_of(topic)
    assert sorted(map(int, bodies(rows))) == list(range(1500))
    assert (result.rows, result.skipped, result.unsafe, result.retries) == (1500, 0, {}, 0)
    assert sum(last + 1 for last in result.last_offsets.values()) == 1500
    assert result.requests < 40  # batches, not messages
    assert len({row["msgId"] for row in rows}) == 1500
    for queue in range(3):  # rows of a partition keep their order in each queue
        found = [int(row["body"]) for row in rows if row["queueId"] == queue]
        assert found == sorted(found)


plain = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
row = st.fixed_dictionaries(
    {"body": st.binary(min_size=1, max_size=400)},
    optional={
        "tags": plain,
        "keys": plain,
        "properties": st.dictionaries(plain.map("p".__add__), plain, min_size=1, max_size=3),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "queueId": st.integers(0, 2),
        "shardingKey": plain,
    },
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(row, min_size=1, max_size=40), st.sampled_from([300, 131072]), st.sampled_from(["0", "100", "100000"]))
def test_every_row_is_read_back_equal(make_topic, rows, batch_bytes, compress_over):
    topic = make_topic(queues=3)
    more = {"compressBodyOverBytes": compress_over, "compression": "lz4"} if compress_over != "0" else {}
    write(topic, frame(rows), batchBytes=batch_bytes, **more)
    found = []
    for one in rows_of(topic):
        properties = dict(one["properties"])
        key = properties.pop("__SHARDINGKEY", None)
        own = {name: value for name, value in properties.items() if name.startswith("p")}
        back = {"body": one["body"], "tags": one["tags"], "keys": one["keys"], "flag": one["flag"], "properties": own}
        found.append({**back, "queueId": one["queueId"], "shardingKey": key})
    wanted = []
    queues = [topic.queue(n) for n in range(3)]
    for one in rows:
        given_or_none = {"tags": None, "keys": None, "flag": 0, "properties": {}, "shardingKey": None, **one}
        if "queueId" not in one and "shardingKey" in one:
            given_or_none["queueId"] = queue_for_key(one["shardingKey"], queues).queue_id
        wanted.append(given_or_none)
    assert len(found) == len(wanted)
    for one in wanted:
        (same, *_) = [f for f in found if all(f[name] == value for name, value in one.items())] or [None]
        assert same is not None, one
        found.remove(same)


def test_rows_of_a_sharding_key_keep_their_order_whatever_the_size_of_requests(make_topic):
    topic = make_topic(queues=4)
    write(topic, *(frame([{"body": b"%d" % n, "shardingKey": f"k{n % 5}"} for n in range(s, s + 200)])
                   for s in range(0, 1000, 200)), batchBytes=500)  # fmt: skip
    rows = rows_of(topic)
    for key in range(5):
        assert [int(r["body"]) for r in rows if int(r["body"]) % 5 == key] == list(range(key, 1000, 5))
        assert len({row["queueId"] for row in rows if int(row["body"]) % 5 == key}) == 1


def test_a_topic_column_sends_each_row_to_its_topic(make_topic):
    one, two = make_topic(), make_topic()
    rows = [{"body": b"%d" % n, "topic": (one, two)[n % 2].name} for n in range(20)]
    assert write(one, frame(rows), topic="").rows == 20
    assert sorted(one.read(), key=int) == [str(n) for n in range(0, 20, 2)]
    assert sorted(two.read(), key=int) == [str(n) for n in range(1, 20, 2)]


def test_delayed_rows_go_alone_and_arrive_later(make_topic):
    topic = make_topic(queues=1)
    rows = [{"body": b"%d" % n, "delayLevel": 1 if n == 5 else 0} for n in range(10)]
    result = write(topic, frame(rows))
    assert result.requests == 3
    assert result.last_offsets == {topic.queue(0): 8}
    end = time.monotonic() + 20
    while len(topic.read()) < 10:
        assert time.monotonic() < end, "the delayed message did not arrive"
        time.sleep(0.1)
    assert topic.read() == ["0", "1", "2", "3", "4", "6", "7", "8", "9", "5"]


def test_large_bodies_go_alone(make_topic):
    topic = make_topic(queues=1)
    rows = [{"body": b"small"}, {"body": bytes(1 << 20)}, {"body": b"x" * (4 << 20)}, {"body": b"last"}]
    assert write(topic, frame(rows)).requests == 4
    assert [len(row["body"]) for row in rows_of(topic)] == [5, 1 << 20, 4 << 20, 4]


def test_a_task_without_rows_sends_no_request(make_topic):
    topic = make_topic()
    assert write(topic, numbered(0), nameServer="127.0.0.1:1").rows == 0
    assert write(topic, nameServer="127.0.0.1:1", write_id="q").rows == 0


def test_the_writers_of_spark_write_tell_and_need_to_know_their_batch(make_topic, caplog):
    topic = make_topic(queues=1)
    schema = StructType([StructField("body", BinaryType())])
    source = RocketmqSource(topic.options())
    written = source.writer(schema, overwrite=False).write(iter([numbered(5)]))
    streamed = source.streamWriter(schema, overwrite=False).write(iter([numbered(5, 5)]))
    assert topic.read() == numbers(10)
    with caplog.at_level("INFO", "twinlog"):
        source.writer(schema, overwrite=False).commit([pickle.loads(pickle.dumps(written)), None])
        source.streamWriter(schema, overwrite=False).abort([streamed], 7)
    assert "rows=5" in caplog.text and topic.key(0) in caplog.text and "batch=7" in caplog.text
    stamped = RocketmqSource(topic.options(idempotent="true")).streamWriter(schema, overwrite=False)
    with pytest.raises(CannotWrite, match="foreachBatch with a writeId"):
        stamped.write(iter([numbered(5)]))


def test_credentials_sign_every_request(make_topic, monkeypatch):
    signed = []
    real = remoting.sign
    monkeypatch.setattr(remoting, "sign", lambda command, keys: (signed.append(command.code), real(command, keys)))
    topic = make_topic()
    write(topic, numbered(10), write_id="signed", accessKey="me", secretKey="hidden")
    assert {RequestCode.SEND_BATCH_MESSAGE, RequestCode.QUERY_MESSAGE} <= set(signed)
    assert sorted(topic.read(), key=int) == numbers(10)


def test_a_broker_is_written_to_through_tls(make_topic):
    topic = make_topic()
    write(topic, numbered(10), rocketmq__useTLS="true", rocketmq__tls__verify="false")
    assert sorted(topic.read(), key=int) == numbers(10)


# -- failures ------------------------------------------------------------------------------------------


def break_sends(monkeypatch, *, at, after_arrival: bool):
    """Cut the connection at the sends with these numbers, before they leave or after they have arrived."""
    count = [0]
    real, real_parts = remoting.BlockingConnection.send, remoting.BlockingConnection.send_parts

    def cut(self, go):
        count[0] += 1
        if count[0] in at:
            if after_arrival:
                go()
                time.sleep(0.2)  # the broker stores it, and its answer is lost
            raise ConnectionLost(self.address, "cut by the test")
        return go()

    def send(self, requests):
        requests = list(requests)
        go = functools.partial(real, self, requests)
        return cut(self, go) if requests[0].code in SENDS else go()

    monkeypatch.setattr(remoting.BlockingConnection, "send", send)
    monkeypatch.setattr(
        remoting.BlockingConnection,
        "send_parts",
        lambda self, parts: cut(self, functools.partial(real_parts, self, parts)),
    )
    return count


def test_a_send_that_did_not_arrive_is_sent_again(make_topic, monkeypatch):
    topic = make_topic()
    count = break_sends(monkeypatch, at={2, 3, 6}, after_arrival=False)
    result = write(topic, numbered(400), batchBytes=2000)
    assert count[0] > 10
    assert result.retries >= 3
    assert set(topic.read()) == set(numbers(400))


def test_without_idempotence_a_lost_answer_means_a_row_twice_and_never_none(make_topic, monkeypatch):
    topic = make_topic()
    break_sends(monkeypatch, at={2, 6}, after_arrival=True)
    write(topic, numbered(400), batchBytes=2000)
    assert set(topic.read()) == set(numbers(400))
    assert len(topic.read()) > 400


def test_with_idempotence_a_lost_answer_is_looked_up(make_topic, monkeypatch):
    topic = make_topic()
    break_sends(monkeypatch, at={2, 6}, after_arrival=True)
    result = write(topic, numbered(400), batchBytes=2000, write_id="lost")
    assert sorted(topic.read(), key=int) == numbers(400)
    assert result.rows == 400


def answering(monkeypatch, code: int, times: int):
    """Let the first send answers have `code`; the broker has stored the rows nevertheless."""
    left = [times]
    real = remoting.BlockingConnection.receive

    def receive(self, *arguments):
        answers = real(self, *arguments)
        for answer in answers:
            if left[0] and "queueOffset" in answer.fields:
                answer.code, answer.remark = code, "said by the test"
                left[0] -= 1
        return answers

    monkeypatch.setattr(remoting.BlockingConnection, "receive", receive)


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_rows_that_are_stored_but_not_safe_are_counted_or_an_error(make_topic, monkeypatch, status):
    topic = make_topic(queues=1)
    answering(monkeypatch, ResponseCode[status], 1)
    result = write(topic, numbered(10))
    assert (result.rows, result.unsafe) == (10, {status: 10})
    answering(monkeypatch, ResponseCode[status], 1)
    with pytest.raises(CannotWrite, match=rf"topic {topic.name} broker {BROKER} queue 0.*10 rows .*{status}"):
        write(topic, numbered(10), unsafeAcks="fail")


def test_a_busy_broker_is_tried_again_and_an_illegal_message_is_not(make_topic, monkeypatch):
    topic = make_topic(queues=1)
    answering(monkeypatch, ResponseCode.SYSTEM_BUSY, 2)
    assert write(topic, numbered(10)).retries == 2
    answering(monkeypatch, ResponseCode.MESSAGE_ILLEGAL, 1)
    with pytest.raises(CannotWrite, match=rf"topic {topic.name} broker {BROKER} queue 0 \(row 0 .*MESSAGE_ILLEGAL"):
        write(topic, numbered(10))


@pytest.mark.parametrize("write_id", ["", "smaller"])
def test_batches_that_a_broker_refuses_for_their_size_are_sent_in_smaller_ones(make_topic, monkeypatch, write_id):
    topic, sizes = make_topic(queues=1), refusing_over(monkeypatch, 300_000)
    rows = [{"body": b"%06d" % n + bytes(1000)} for n in range(3000)]
    result = write(topic, frame(rows), write_id=write_id)
    assert [body[:6] for body in topic.read()] == [f"{n:06d}" for n in range(3000)]
    assert (result.rows, result.retries) == (3000, 0)
    assert len([size for size in sizes if size > 300_000]) == 1  # it is not tried again with the next one
    assert result.requests == len(sizes) - 1 >= 10


def refusing_over(monkeypatch, bytes_max: int) -> list[int]:
    """Let the broker refuse batches of more bytes, as those with a smaller maxMessageSize do; the sizes of all."""
    sizes: list[int] = []
    refused: list[Response] = []
    real_parts, real_receive = remoting.BlockingConnection.send_parts, remoting.BlockingConnection.receive

    def send_parts(self, parts):
        sizes.append(len(parts[1]))
        if len(parts[1]) <= bytes_max:
            return real_parts(self, parts)
        opaque = decode_header(parts[0][8:], JSON).opaque
        refused.append(Response(opaque, ResponseCode.MESSAGE_ILLEGAL, "too large", {}, memoryview(b"")))

    def receive(self, *arguments):
        answers = refused[:] or real_receive(self, *arguments)
        refused.clear()
        return answers

    monkeypatch.setattr(remoting.BlockingConnection, "send_parts", send_parts)
    monkeypatch.setattr(remoting.BlockingConnection, "receive", receive)
    return sizes


def test_a_missing_topic_says_how_to_create_it(make_topic):
    with pytest.raises(NoRoute, match="updateTopic -t Nowhere"):
        write(make_topic(), numbered(1), topic="Nowhere")


def test_a_broker_that_stays_away_is_named_with_every_try(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        with Admin(broker.namesrv_address) as admin:
            admin.create_topic("T", queues=1)
        made = task(NamedTopic(broker.namesrv_address, "T"), numRetries=2, brokerWait=0)
        made._cluster.route("T")
    for connection in list(remoting._connections.values()):
        connection.close()
    told = r"topic T broker broker-dev queue 0 .*not stored after 3 tries: 1\..*3\..*; its broker is away .*brokerWait"
    with pytest.raises(CannotWrite, match=told):
        made.run(iter([numbered(5)]))


@pytest.fixture
def two_brokers(make_topic, monkeypatch):
    """A topic on two brokers, of which `broker-gone` does not answer."""
    topic = make_topic(queues=2)
    real = Cluster.route
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"127.0.0.1:{free.getsockname()[1]}"

    def route(self, name, *, fresh=False):
        found = real(self, name, fresh=fresh)
        gone = tuple(MessageQueue(name, "broker-gone", n) for n in range(2))
        return replace(found, writable=(*found.writable, *gone), brokers={**found.brokers, "broker-gone": {0: dead}})

    monkeypatch.setattr(Cluster, "route", route)
    return topic


def test_rows_of_a_broker_that_died_go_to_another(two_brokers):
    result = write(two_brokers, numbered(1000))
    assert result.retries >= 1
    assert sorted(two_brokers.read(), key=int) == numbers(1000)


@pytest.mark.parametrize("wish", [{"brokerName": "broker-gone"}, {"brokerName": "broker-gone", "queueId": 1}])
def test_rows_that_name_a_broker_that_died_are_an_error(two_brokers, wish):
    with pytest.raises(CannotWrite, match=r"broker broker-gone queue .*not stored after 2 tries"):
        write(two_brokers, numbered(10, **wish), numRetries=1, brokerWait=0)


@pytest.mark.parametrize("more", [{}, {"write_id": "waits"}])
def test_rows_wait_for_their_broker_and_are_stored_when_it_is_back(broker, make_topic, tmp_path, monkeypatch, more):
    second = SecondBroker(broker.namesrv_address, tmp_path / "second").start()
    try:
        topic = make_topic(queues=1)
        second.add_topic(topic.name)
        rows = numbered(300, brokerName=second.name)
        made = task(topic, batchBytes="1k", maxInFlight=1, **more)
        real, pauses = sender_module.Sender._stored, []

        def stored(self, send_queue, answer):
            real(self, send_queue, answer)
            if self.totals.requests == 3:
                second.stop()  # amid the task

        def pause(seconds):
            pauses.append(seconds)
            if len(pauses) == 10:  # more than numRetries
                second.start()

        monkeypatch.setattr(sender_module.Sender, "_stored", stored)
        monkeypatch.setattr(sender_module, "time", own_time(sleep=pause))
        made.run(iter([rows]))
        assert len(pauses) >= 10
        assert topic.read() == numbers(300)
    finally:
        second.stop()


def test_an_idempotent_write_does_not_go_elsewhere(two_brokers):
    with pytest.raises((CannotWrite, NetError)):
        write(two_brokers, numbered(1000), write_id="stays", numRetries=1, brokerWait=0)


def test_a_task_that_ends_waits_for_every_broker_although_one_of_them_is_gone(monkeypatch):
    options = write_options({"nameServer": "127.0.0.1:1", "topic": "T"}, streaming=False)
    sender, forgotten, heard = Sender(options, Cluster(options.cluster)), [], []

    class Connection:
        def __init__(self, address):
            self._address = address

        def receive(self, timeout_ms):
            heard.append(self._address)
            if self._address == "gone":
                raise ConnectionLost("gone")
            return [Response(2, 0, "", {}, memoryview(b""))]

    monkeypatch.setattr(sender_module, "connection_to", lambda address, _: Connection(address))
    monkeypatch.setattr(sender_module, "forget_connection", lambda address, _: forgotten.append(address))
    send_queue = sender.open_queue(MessageQueue("T", "b", 0), is_free=False)
    soon = time.monotonic() + 1
    sender._flights = {1: ("gone", send_queue, soon), 2: ("there", send_queue, soon), 3: ("gone", send_queue, soon)}
    sender.close()
    assert (heard, forgotten, sender._flights) == (["gone", "there"], ["gone"], {})
