"""What Spark's sources ask of a real Java master and its slave: metadata, SQL92 filters, timers, a group's progress."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.interop.admin_session import AdminSession
from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.patient import WaitingProducer
from tests.interop.replica_pair import log_end, until
from tests.spark.topics import bodies_of
from tests.spark.writing.written import NamedTopic, frame, write

from twinlog.client import Outgoing
from twinlog.client.sync import Admin, PullConsumer
from twinlog.spark.errors import BadOption
from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
from twinlog.spark.reading.brokers.metadata_reader import MetadataReader, metadata_options
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.stream_reader import QueueStreamReader
from twinlog.spark.schema import LIVE_COLUMNS, MESSAGE_COLUMNS, METADATA_KINDS
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC, GROUP, NAME = "SparkOrders", "spark-billing", "broker-a"
CONF = {"mappedFileSizeCommitLog": str(1 << 20), "enablePropertyFilter": "true"}


@dataclass
class Place:
    java: JavaRocketmq
    names: NameServer
    master: Broker
    home: Path

    def options(self, **more: str) -> dict[str, str]:
        return {"nameServer": self.names.address, **more}

    def metadata(self, kind: str) -> list[dict]:
        reader = MetadataReader(metadata_options(self.options(kind=kind)), LIVE_COLUMNS[kind])
        return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    def bodies(self, **more: str) -> list[str]:
        options = read_options(self.options(topic=TOPIC, **more), streaming=False)
        return bodies_of(QueueBatchReader(options, MESSAGE_COLUMNS))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    java, home = JavaRocketmq("5.5.0"), tmp_path_factory.mktemp("spark-metadata")
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(java.name_server(home / "names"))
        master = stack.enter_context(java.broker(home / "master", names.address, **CONF))
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        slave = stack.enter_context(java.broker(home / "slave", names.address, **CONF, **role))
        with Admin(names.address) as admin:
            admin.create_topic(TOPIC, queues=1)
            admin.save_group(master.address, SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3))
        with WaitingProducer(names.address, "PG") as producer:
            for n in range(6):
                properties = {"amount": str(n)}
                producer.send(Outgoing(TOPIC, b"%d" % n, properties=properties), queue=MessageQueue(TOPIC, NAME, 0))
        until(lambda: log_end(slave.store) == log_end(master.store) > 0, "the slave has joined")
        yield Place(java, names, master, home)


def test_master_and_slave_of_java_give_their_metadata_as_tables(place: Place):
    with PullConsumer(place.names.address, GROUP, register=False) as consumer:
        consumer.commit(MessageQueue(TOPIC, NAME, 0), 4)
    found = {kind: place.metadata(kind) for kind in METADATA_KINDS}
    ours = {row["brokerId"]: row for row in found["consumer_offsets"] if row["topic"] == TOPIC}
    assert (ours[0]["consumerGroup"], ours[0]["offset"], ours[0]["maxOffset"]) == (GROUP, 4, 6)
    assert {row["brokerId"] for row in found["topic_configs"]} == {0, 1}
    (group,) = [row for row in found["subscription_groups"] if (row["consumerGroup"], row["brokerId"]) == (GROUP, 0)]
    assert group["retryMaxTimes"] == 3
    assert {row["brokerId"] for row in found["timer"]} == {0, 1}


def test_java_filters_by_sql_and_a_wrong_condition_is_an_error(place: Place):
    assert place.bodies(subExpressionType="SQL92", subExpression="amount > 3") == ["4", "5"]
    with pytest.raises(BadOption, match=r"subExpression 'amount >'"):
        place.bodies(subExpressionType="SQL92", subExpression="amount >")


def test_the_progress_of_a_stream_is_shown_by_the_real_mqadmin(place: Place):
    group = "spark-watched"
    with Admin(place.names.address) as admin:
        admin.save_group(place.master.address, SubscriptionGroupConfig(group_name=group))
    given = place.options(topic=TOPIC, consumerGroup=group, commitOffsetsToGroup="true")
    stream = QueueStreamReader(read_options(given, streaming=True), MESSAGE_COLUMNS)
    stream.latestOffset({f"{TOPIC}@{NAME}@0": 4}, ReadAllAvailable())
    (place.home / "mqadmin").mkdir()
    cluster = Cluster(place.java, place.names, place.master)
    limit = time.monotonic() + 60  # Java registers a new topic a little later
    with AdminSession(place.java, cluster, place.home / "mqadmin") as mqadmin:
        while TOPIC not in (shown := mqadmin.run(["consumerProgress", "-g", group])):
            assert time.monotonic() < limit, shown
    (line,) = [line.split() for line in shown.splitlines() if line.startswith(TOPIC)]
    assert line[1:6] == [NAME, "0", "6", "4", "2"] or line[1:5] == [NAME, "0", "6", "4"], shown


def test_java_delivers_a_row_at_its_time(place: Place):
    soon = datetime.now(UTC) + timedelta(seconds=3)
    result = write(NamedTopic(place.names.address, TOPIC), frame([{"body": b"then", "deliverAt": soon}]), write_id="t")
    assert (result.rows, "then" in place.bodies()) == (1, False)
    limit = time.monotonic() + 60
    while place.bodies()[-1] != "then":
        assert time.monotonic() < limit
        time.sleep(0.3)
    again = write(NamedTopic(place.names.address, TOPIC), frame([{"body": b"then", "deliverAt": soon}]), write_id="t")
    assert again.skipped == 1
