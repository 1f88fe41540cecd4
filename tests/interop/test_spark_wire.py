"""Real Spark reads from real Java brokers of both versions: master, slave, and the store directory they leave.

A Java producer writes one of every kind of message; what it was told by the broker is what Spark has to find.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.patient import WaitingProducer, WaitingPullConsumer
from tests.interop.replica_pair import log_end, pull_everything, until
from tests.interop.test_store_exchange import lines

from twinlog.client import Outgoing
from twinlog.wire.bodies import MessageQueue

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(660)]
CONF = {"mappedFileSizeCommitLog": str(256 << 10), "slaveReadEnable": "true", "messageDelayLevel": "1s 15s 1m"}
PLAIN, TOPICS = "T_plain", "T_plain,T_batch,T_compressed,T_tx"
GROUP = "G_store"


@dataclass
class Place:
    """A Java master and its slave, filled by a Java producer."""

    names: NameServer
    master: Broker
    slave: Broker
    wrote: dict[tuple[str, int, int], tuple[str, str]]  # (topic, queue, offset): digest of the body, keys

    def options(self, topic: str = TOPICS, **more: object) -> dict[str, str]:
        return {"nameServer": self.names.address, "topic": topic, **{key: str(value) for key, value in more.items()}}


@pytest.fixture(scope="module")
def spark():
    from twinlog.spark.session import start

    quick = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    session = start("interop", master="local[2,4]", conf={**conf, "spark.driver.extraJavaOptions": quick})
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["5.5.0", "4.9.7"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    java, home = JavaRocketmq(request.param), tmp_path_factory.mktemp("wire")
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(java.name_server(home / "names"))
        master = stack.enter_context(java.broker(home / "master", names.address, **CONF))
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        slave = stack.enter_context(java.broker(home / "slave", names.address, **CONF, **role))
        # Java: a slave that joins an empty log has all of it, one that joins later begins with the master's last file.
        with WaitingProducer(names.address, "first") as producer:
            producer.send(Outgoing("Hello", b"hello"))
        until(lambda: log_end(slave.store) == log_end(master.store) > 0, "the slave has joined")
        printed, _ = lines(java.run("StoreFill", names.address, master.address))
        wrote = {
            (line["topic"], line["queueId"], line["queueOffset"]): (line["body"], line["keys"])
            for line in printed
            if line["topic"] in TOPICS.split(",")
        }
        assert len(wrote) == 600 + 100 + 5 + 1
        yield Place(names, master, slave, wrote)


def table(spark, place: Place, topic: str = TOPICS, **more: object):
    return spark.read.format("rocketmq").options(**place.options(topic, **more)).load()


def facts(frame) -> dict[tuple[str, int, int], tuple[str, str]]:
    """What `Place.wrote` holds, from rows."""
    rows = frame.select("topic", "queueId", "queueOffset", "body", "keys").collect()
    found = {
        (row.topic, row.queueId, row.queueOffset): (hashlib.sha256(row.body).hexdigest()[:24], row.keys) for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_every_kind_of_message_is_a_row(spark, place):
    frame = table(spark, place)
    assert facts(frame) == place.wrote
    one = frame.where("keys = 'plain-77'").first()
    assert (one.topic, one.brokerName, one.queueId, one.tags) == (PLAIN, "broker-a", 1, "tag2")
    assert one.properties["number"] == "77"
    assert one.properties["UNIQ_KEY"] == one.msgId
    assert one.storeHost == place.master.address
    assert one.bornTimestamp <= one.storeTimestamp
    assert facts(table(spark, place, minPartitions=9, pullBatchSize=5)) == place.wrote


def test_the_broker_filters_by_tag(spark, place):
    found = facts(table(spark, place, PLAIN, subExpression="tag1 || tag2"))
    numbers = {int(keys.removeprefix("plain-")) for _, keys in found.values()}
    assert numbers == {n for n in range(600) if n % 3}


def test_times_and_offsets_and_a_group_say_where_to_start_and_end(spark, place):
    rows = table(spark, place, PLAIN).select("queueId", "queueOffset", "storeTimestamp").collect()
    times = {(row.queueId, row.queueOffset): round(row.storeTimestamp.timestamp() * 1000) for row in rows}
    middle = sorted(times.values())[300]

    def places(**more: object) -> set[tuple[int, int]]:
        return {(queue, offset) for _, queue, offset in facts(table(spark, place, PLAIN, **more))}

    assert places(startingTimestamp=middle) == {at for at, time_ms in times.items() if time_ms >= middle}
    assert places(endingTimestamp=middle) == {at for at, time_ms in times.items() if time_ms < middle}
    start, end = (f'{{"{PLAIN}":{{"broker-a":{{"0":{a},"1":{b},"2":{c},"3":{d}}}}}}}' for a, b, c, d in OFFSETS)
    wanted = {(q, n) for q in range(4) for n in range(150) if max(OFFSETS[0][q], 0) <= n < OFFSETS[1][q] % 151}
    assert places(startingOffsets=start, endingOffsets=end) == wanted
    # A Java consumer committed 77 in queue 2, and nothing elsewhere.
    from_group = {(q, n) for q in range(4) for n in range(77 if q == 2 else 0, 150)}
    assert places(startingOffsets="group", consumerGroup=GROUP) == from_group


OFFSETS = (-2, 10, 149, 20), (5, -1, 150, 20)  # -1 is the end, which is 150: -1 % 151


def test_a_stream_has_every_message_once_and_tells_the_group(spark, place, tmp_path):
    options = place.options(PLAIN, startingOffsets="earliest", maxOffsetsPerTrigger=250)
    options |= {"consumerGroup": "CG_STREAM", "commitOffsetsToGroup": "true"}

    def run() -> list[int]:
        writer = spark.readStream.format("rocketmq").options(**options).load().writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "check"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert max(run()) <= 250
    with WaitingProducer(place.names.address, "more") as producer:
        for number in range(40):
            queue = MessageQueue(PLAIN, "broker-a", number % 4)
            producer.send(Outgoing(PLAIN, b"more", keys=f"m{number}"), queue=queue)
    # Java: a queue follows its log a moment later.
    until(lambda: len(pull_everything(place.master.address, PLAIN, 4)) == 640, "the queues have all of them")
    try:
        assert sum(run()) == 40
        found = facts(spark.read.parquet(str(tmp_path / "out")))
        assert len(found) == 640
        assert {at: told for at, told in found.items() if at[2] < 150} == {
            at: told for at, told in place.wrote.items() if at[0] == PLAIN
        }
        with WaitingPullConsumer(place.names.address, "CG_STREAM", register=False) as consumer:
            assert [consumer.committed(MessageQueue(PLAIN, "broker-a", queue)) for queue in range(4)] == [160] * 4
    finally:
        more = hashlib.sha256(b"more").hexdigest()[:24]
        place.wrote |= {(PLAIN, number % 4, 150 + number // 4): (more, f"m{number}") for number in range(40)}


def test_a_slave_serves_when_its_master_is_dead_and_the_store_it_left_is_a_table(spark, place):
    # A slave learns of topics every ten seconds.
    until(lambda: log_end(place.slave.store) == log_end(place.master.store), "the slave has everything")
    topics = TOPICS.split(",")
    served = lambda: sum(len(pull_everything(place.slave.address, topic, 4)) for topic in topics)  # noqa: E731
    until(lambda: served() == len(place.wrote), "the slave knows the topics")
    assert facts(table(spark, place, readFrom="slave")) == place.wrote
    place.master.kill()
    assert facts(table(spark, place, readFrom="slave")) == place.wrote
    for store in (place.master.store, place.slave.store):
        frame = spark.read.format("rocketmq_store").option("splitBytes", "100k").load(str(store))
        names = [f"'{name}'" for name in TOPICS.split(",")]
        assert facts(frame.where(f"topic in ({','.join(names)})")) == place.wrote
        assert Path(frame.select("segment").first().segment).name.isdigit()
