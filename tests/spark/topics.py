"""A topic of the embedded broker, and readers of it without a JVM."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.stream_reader import QueueStreamReader
from twinlog.spark.schema import MESSAGE_COLUMNS
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig

BROKER = "broker-dev"


class Topic:
    def __init__(self, name_server: str, producer: Producer, name: str, queues: int) -> None:
        self.name_server = name_server
        self.name = name
        self._producer = producer
        self.resize(queues)

    def resize(self, queues: int) -> None:
        with Admin(self.name_server) as admin:
            admin.create_topic(self.name, queues=queues)

    def create_group(self, name: str) -> None:
        with Admin(self.name_server) as admin:
            (address,) = admin.topic_masters(self.name).values()
            admin.save_group(address, SubscriptionGroupConfig(group_name=name))

    def store_batches_whole(self) -> None:
        """Make it a BatchCQ topic, before the first message."""
        with Admin(self.name_server) as admin:
            (address,) = admin.topic_masters(self.name).values()
            admin.delete_topic(self.name)
            config = TopicConfig(topic_name=self.name, read_queue_nums=1, write_queue_nums=1)
            admin.save_topic(address, config, attributes="+queue.type=BatchCQ")

    def queue(self, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(self.name, BROKER, queue_id)

    def key(self, queue_id: int = 0) -> str:
        return f"{self.name}@{BROKER}@{queue_id}"

    def json(self, **offsets: int) -> str:
        """startingOffsets and the like; q0=5 stands for queue 0."""
        members = ",".join(f'"{name[1:]}":{number}' for name, number in offsets.items())
        return f'{{"{self.name}":{{"{BROKER}":{{{members}}}}}}}'

    def send(self, *bodies: bytes | str, queue: int = 0, tags: str | None = None) -> None:
        for body in bodies:
            data = body if isinstance(body, bytes) else body.encode()
            self._producer.send(Outgoing(self.name, data, tags=tags), queue=self.queue(queue))

    def send_numbers(self, count: int, *, queue: int = 0, start: int = 0) -> None:
        """Many messages at little cost; their bodies are their numbers."""
        for begin in range(start, start + count, 100):
            numbers = range(begin, min(begin + 100, start + count))
            self._producer.send_batch([Outgoing(self.name, b"%d" % n) for n in numbers], queue=self.queue(queue))

    def options(self, **more: object) -> dict[str, str]:
        given: dict[str, object] = {"nameServer": self.name_server, "topic": self.name}
        if any(name in more for name in ("subscribePattern", "assign", "subscribe")):
            del given["topic"]
        return {name.replace("__", "."): str(value) for name, value in {**given, **more}.items()}

    def reader(self, columns=MESSAGE_COLUMNS, **more: object) -> QueueBatchReader:
        return QueueBatchReader(read_options(self.options(**more), streaming=False), columns)

    def stream(self, columns=MESSAGE_COLUMNS, checkpoints: str | None = None, **more: object) -> QueueStreamReader:
        return QueueStreamReader(read_options(self.options(**more), streaming=True), columns, checkpoints)

    def read(self, **more: object) -> list[str]:
        """The bodies of a batch read, by queue and offset."""
        return bodies_of(self.reader(**more))


def bodies_of(reader, partitions: list[InputPartition] | None = None) -> list[str]:
    parts = reader.partitions() if partitions is None else partitions
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return [row["body"].decode() for row in sorted(rows, key=lambda r: (r["topic"], r["queueId"], r["queueOffset"]))]


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(n) for n in range(start, start + count)]
