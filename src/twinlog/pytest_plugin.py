"""Fixtures for tests that need a broker: `twinlog_broker` for one test, `twinlog_broker_session` for all.

    def test_orders_arrive(twinlog_broker):
        producer = twinlog_broker.producer()
        producer.send(Outgoing("Orders", b"one tea"))
        assert [m.body for m in twinlog_broker.messages("Orders")] == [b"one tea"]

The broker and its name server run in a thread of the test process, on free loopback ports and a
temporary directory. Nothing of Twinlog is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twinlog.client import Message
    from twinlog.client.sync import Admin, Producer, PullConsumer, PushConsumer


class TwinlogBroker:
    """A running broker, and clients of it that are closed with it.

    `namesrv` is the name server's host:port for clients of your own, asynchronous ones too.
    """

    def __init__(self, namesrv: str, address: str, clients: ExitStack) -> None:
        self.namesrv, self.address = namesrv, address
        self._clients = clients
        self._admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """Creates and reads topics and groups: every method of `twinlog.client.Admin`, blocking."""
        if self._admin is None:
            from twinlog.client.sync import Admin

            self._admin = self._clients.enter_context(Admin(self.namesrv))
        return self._admin

    def producer(self, group: str = "test-producer", **options: Any) -> Producer:
        """A started `twinlog.client.sync.Producer`."""
        from twinlog.client.sync import Producer

        return self._clients.enter_context(Producer(self.namesrv, group, **options))

    def pull_consumer(self, group: str = "test-reader", **options: Any) -> PullConsumer:
        """A started `twinlog.client.sync.PullConsumer`."""
        from twinlog.client.sync import PullConsumer

        return self._clients.enter_context(PullConsumer(self.namesrv, group, **options))

    def push_consumer(
        self, group: str, topic: str, listener: Any, expression: str = "*", **options: Any
    ) -> PushConsumer:
        """A started `twinlog.client.sync.PushConsumer` that begins with the topic's first message."""
        from twinlog.client import ConsumerOptions, StartFrom
        from twinlog.client.sync import PushConsumer

        options.setdefault("consumer_options", ConsumerOptions(start_from=StartFrom.FIRST))
        consumer = PushConsumer(self.namesrv, group, listener, **options)
        consumer.subscribe(topic, expression)
        return self._clients.enter_context(consumer)

    def messages(self, topic: str) -> list[Message]:
        """Everything that `topic` holds now, queue by queue; nothing for a topic that does not exist."""
        from twinlog.client import NoRoute

        reader = self.pull_consumer(register=False)
        found: list[Message] = []
        try:
            queues = reader.queues(topic)
        except NoRoute:
            return []
        for queue in queues:
            found += reader.messages(queue, reader.min_offset(queue), reader.max_offset(queue))
        return found


@pytest.fixture
def twinlog_broker() -> Iterator[TwinlogBroker]:
    """A broker of its own for this test."""
    with ExitStack() as stack:
        yield _start(stack)


@pytest.fixture(scope="session")
def twinlog_broker_session() -> Iterator[TwinlogBroker]:
    """One broker for all tests of the session; give each test topics of its own."""
    with ExitStack() as stack:
        yield _start(stack)


def _start(stack: ExitStack) -> TwinlogBroker:
    from twinlog.broker.embedded import EmbeddedBroker

    broker = stack.enter_context(EmbeddedBroker())
    return TwinlogBroker(broker.namesrv_address, broker.broker_address, stack.enter_context(ExitStack()))
