"""A group that fails on a message, until it is a dead letter."""

from __future__ import annotations

import threading

from twinlog.client import ConsumerOptions, Outgoing, RetryLater, StartFrom
from twinlog.client.sync import Admin, Producer, PushConsumer


def make_dead_letter(names: str, group: str, topic: str, body: bytes) -> None:
    failed = threading.Event()

    def fail(message: object) -> None:
        failed.set()
        raise RetryLater(-1)

    with Admin(names) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(names, "shop") as producer:
        producer.send(Outgoing(topic, body))
    first = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(names, group, fail, consumer_options=first)
    consumer.subscribe(topic)
    with consumer:
        assert failed.wait(30)
