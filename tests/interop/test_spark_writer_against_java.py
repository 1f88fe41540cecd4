"""The Spark writer, without a JVM of Spark's, with real Java brokers of both versions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from tests.interop.clusters import Cluster, Clusters
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import WaitingAdmin, WaitingProducer
from tests.spark.writing.written import frame

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.schema import MESSAGE_COLUMNS
from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.stamp_lookup import StampLookup
from twinlog.spark.writing.stamps import Stamps
from twinlog.spark.writing.task import TaskPlace, TaskWrite
from twinlog.spark.writing.totals import SendTotals

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(660)]


@pytest.fixture(scope="module", params=["java-5.5.0", "java-4.9.7"])
def place(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    found = clusters.get(request.param, use="python-client")
    with WaitingAdmin(found.names.address) as admin:
        wait_for(lambda: admin.cluster_info().cluster_addr_table)
    return found


@pytest.fixture
def topic(place: Cluster) -> str:
    name = f"W_{uuid.uuid4().hex[:12]}"
    with WaitingAdmin(place.names.address) as admin, WaitingProducer(place.names.address, "asks") as producer:
        admin.create_topic(name, queues=4)
        wait_for(lambda: len(producer.queues(name)) == 4)
    return name


def wait_for(condition: Callable[[], object], seconds_max: float = 150) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def write(place: Cluster, topic: str, rows: list[dict], **more: str) -> SendTotals:
    options = write_options({"nameServer": place.names.address, "topic": topic, **more}, streaming=True)
    return TaskWrite(options, TaskPlace(f"write-of-{topic}")).run(iter([frame(rows)]))


def read(place: Cluster, topic: str) -> list[dict]:
    options = read_options({"nameServer": place.names.address, "topic": topic}, streaming=False)
    reader = QueueBatchReader(options, MESSAGE_COLUMNS)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"]))


def test_rows_are_messages_as_a_java_broker_keeps_them(place, topic):
    rows = [
        {"body": b"%d" % n, "tags": f"tag{n % 2}", "keys": f"key{n} all", "properties": {"color": "red"}, "flag": n}
        for n in range(600)
    ]
    result = write(place, topic, rows)
    assert result.rows == 600
    wait_for(lambda: len(read(place, topic)) == 600)
    found = {int(row["body"]): row for row in read(place, topic)}
    assert len(found) == 600
    one = found[77]
    assert (one["tags"], one["keys"], one["flag"]) == ("tag1", "key77 all", 77)
    assert dict(one["properties"])["color"] == "red"
    offsets = {queue.queue_id: last for queue, last in result.last_offsets.items()}
    for queue_id, last in offsets.items():
        assert max(row["queueOffset"] for row in found.values() if row["queueId"] == queue_id) == last
    with WaitingAdmin(place.names.address) as admin:
        (by_key,) = admin.messages_by_key(topic, "key77")
        assert by_key.body == b"77"
        assert (by_key.properties["UNIQ_KEY"], by_key.queue_offset) == (one["msgId"], one["queueOffset"])


def test_mqadmin_finds_a_row_by_its_unique_key(place, topic):
    write(place, topic, [{"body": b"find me", "tags": "here", "keys": "k"}], idempotent="true")
    key = Stamps(f"write-of-{topic}", 0, 0).key(topic, 0)
    rocketmq = place.implementation
    assert isinstance(rocketmq, JavaRocketmq)
    told = rocketmq.mqadmin("queryMsgByUniqueKey", "-n", place.names.address, "-t", topic, "-i", key)
    assert "here" in told
    assert key in told


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_compressed_rows_share_batches_and_are_inflated_by_readers(place, topic, compression):
    rows = [{"body": (b"%d " % n) * 500 if n % 2 else b"%d" % n} for n in range(100)]
    result = write(place, topic, rows, compressBodyOverBytes="1000", compression=compression)
    assert result.rows == 100
    wait_for(lambda: len(read(place, topic)) == 100)
    assert sorted(row["body"] for row in read(place, topic)) == sorted(row["body"] for row in rows)


@pytest.mark.parametrize(("body_bytes", "batches"), [(1000, 8), (1, 8)])
def test_large_batches_of_long_and_of_short_rows_are_accepted(place, topic, body_bytes, batches):
    rows = [{"body": b"%06d" % n + b"x" * body_bytes} for n in range(4 * 4096)]
    result = write(place, topic, rows[:4096] if body_bytes > 1 else rows)
    assert (result.requests, result.retries) == (batches, 0)
    wait_for(lambda: len(read(place, topic)) == result.rows)
    assert sorted(row["body"] for row in read(place, topic)) == [row["body"] for row in rows[: result.rows]]


def test_a_broker_with_a_small_limit_gets_smaller_batches(place, topic):
    rows = [{"body": b"%06d" % n + bytes(1000)} for n in range(4096)]
    with WaitingAdmin(place.names.address) as admin:
        (address,) = admin.topic_masters(topic).values()
        before = admin.broker_config(address)["maxMessageSize"]
        admin.update_broker_config(address, {"maxMessageSize": "300000"})
        try:
            result = write(place, topic, rows)
        finally:
            admin.update_broker_config(address, {"maxMessageSize": before})
    assert result.rows == 4096 and result.requests > 4
    wait_for(lambda: len(read(place, topic)) == 4096)
    assert sorted(row["body"] for row in read(place, topic)) == [row["body"] for row in rows]


def indexed(place: Cluster, topic: str, row: int) -> None:
    """Wait until the broker finds a row by its key: Java's index follows its log a moment later."""
    key = Stamps(f"write-of-{topic}", 0, 0).key(topic, row)
    with WaitingAdmin(place.names.address) as admin:
        wait_for(lambda: admin.messages_by_unique_key(topic, key))


def test_an_idempotent_write_is_known_again(place, topic):
    rows = [
        {"body": b"%d" % n, "shardingKey": f"k{n % 3}" if n % 4 else None, "delayLevel": 1 if n % 50 == 7 else None}
        for n in range(1000)
    ]
    assert write(place, topic, rows[:700], idempotent="true").rows == 700
    indexed(place, topic, 699)
    again = write(place, topic, rows, idempotent="true")
    assert (again.skipped, again.rows) == (700, 300)
    indexed(place, topic, 999)
    assert write(place, topic, rows, idempotent="true").skipped == 1000
    wait_for(lambda: len(read(place, topic)) == 1000)
    bodies = sorted(int(row["body"]) for row in read(place, topic))
    assert bodies == list(range(1000))
    lookup = StampLookup(write_options({"nameServer": place.names.address}, streaming=True).cluster)
    (delayed,) = lookup.find(place.broker.address, SCHEDULE_TOPIC, [Stamps(f"write-of-{topic}", 0, 0).key(topic, 7)])
    lookup.close()
    assert delayed is not None
    assert delayed.body == b"7"


def test_a_row_of_the_largest_size_is_stored(place, topic):
    assert write(place, topic, [{"body": bytes(4 << 20)}, {"body": b"small"}]).rows == 2
    wait_for(lambda: len(read(place, topic)) == 2)
    assert sorted(len(row["body"]) for row in read(place, topic)) == [5, 4 << 20]
