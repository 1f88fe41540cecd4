"""A Java broker is restarted while a stream reads from it and another one; no session is needed for that."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import WaitingProducer
from tests.interop.processes import free_port
from tests.interop.replica_pair import until

from twinlog.client import Outgoing
from twinlog.client.sync import Admin
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.stream_reader import QueueStreamReader
from twinlog.spark.schema import MESSAGE_COLUMNS
from twinlog.wire.bodies import MessageQueue, TopicConfig

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC = "Restarted"


def test_a_stream_goes_on_while_a_java_broker_is_away_and_with_it_when_it_is_back(tmp_path: Path) -> None:
    java, port = JavaRocketmq("5.5.0"), free_port()
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(java.name_server(tmp_path / "names")).address
        stays = stack.enter_context(java.broker(tmp_path / "a", names))
        with java.broker(tmp_path / "b", names, port=port, brokerName="broker-b") as leaves:
            with Admin(names) as admin:
                for broker in (stays, leaves):
                    admin.save_topic(broker.address, TopicConfig(TOPIC, read_queue_nums=1, write_queue_nums=1))
            options = read_options({"nameServer": names, "topic": TOPIC, "startingOffsets": "earliest"}, streaming=True)
            stream = QueueStreamReader(options, MESSAGE_COLUMNS)
            until(lambda: set(brokers_of(names)) == {"broker-a", "broker-b"}, "both have the topic")
            at = stream.initialOffset()
            send(names, "broker-a", b"1")
            send(names, "broker-b", b"2")
            at, rows = next_batch(stream, at)
            assert sorted(rows) == [b"1", b"2"]
            send(names, "broker-b", b"3")
        until(lambda: set(brokers_of(names)) == {"broker-a"}, "the name server has forgotten it")
        send(names, "broker-a", b"4")
        at, rows = next_batch(stream, at)
        assert rows == [b"4"]
        at, rows = next_batch(stream, at)
        assert rows == []
        stack.enter_context(java.broker(tmp_path / "b", names, port=port, brokerName="broker-b"))
        send(names, "broker-b", b"5")
        at, rows = next_batch(stream, at)
        assert rows == [b"3", b"5"]


def brokers_of(names: str) -> list[str]:
    with Admin(names) as admin:
        return list(admin.topic_masters(TOPIC))


def send(names: str, broker: str, body: bytes) -> None:
    with WaitingProducer(names, "restarts") as producer:
        producer.send(Outgoing(TOPIC, body), queue=MessageQueue(TOPIC, broker, 0))


def next_batch(stream: QueueStreamReader, start: dict) -> tuple[dict, list[bytes]]:
    end = stream.latestOffset(start, ReadAllAvailable())
    parts = stream.partitions(start, end)
    return end, [row["body"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
