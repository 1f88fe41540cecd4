"""What the pytest fixtures give to a test: a cluster, clients of it that are closed with it, messages, waits."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from twinlog import client
from twinlog.client import ConsumerOptions, Message, NoRoute, Outgoing, SendResult, StartFrom, sync
from twinlog.testing.local_cluster import LocalCluster, RunningBroker, Setting

T = TypeVar("T")
_FROM_FIRST = ConsumerOptions(start_from=StartFrom.FIRST)
_LOOK_SECONDS = 0.01


class TwinlogBroker:
    """A running cluster, most often of one broker, and clients of it that are closed with it.

    `namesrv` is the name server's host:port for clients of your own, asynchronous ones too.
    """

    def __init__(self, cluster: LocalCluster, prefix: str = "") -> None:
        self.cluster, self.prefix = cluster, prefix
        self._clients = ExitStack()
        self._admin: sync.Admin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the clients that were made here; the cluster goes on."""
        self._admin = None
        self._clients.close()

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv

    @property
    def address(self) -> str:
        """host:port of the first broker."""
        return self.master.address

    @property
    def master(self) -> RunningBroker:
        """The first broker: `down`, `slow`, `answer` and `full_disk` are its faults."""
        return self.cluster.brokers[0]

    @property
    def brokers(self) -> list[RunningBroker]:
        """All brokers, each master before its replicas."""
        return self.cluster.brokers

    @property
    def replicas(self) -> list[RunningBroker]:
        return self.cluster.replicas

    # -- names of its own ----------------------------------------------------------------------

    def isolated(self, prefix: str | None = None) -> TwinlogBroker:
        """The same cluster with a prefix of its own for `topic` and `group`; close it, or use it in `with`."""
        return TwinlogBroker(self.cluster, f"t{uuid.uuid4().hex[:8]}-" if prefix is None else prefix)

    def topic(self, name: str, *, queues: int | None = None) -> str:
        """`name` with the prefix; with `queues` the topic is created with so many queues per broker."""
        if queues is not None:
            self.admin.create_topic(self.prefix + name, queues=queues)
        return self.prefix + name

    def group(self, name: str) -> str:
        """`name` with the prefix."""
        return self.prefix + name

    # -- clients -------------------------------------------------------------------------------

    @property
    def admin(self) -> sync.Admin:
        """Creates and reads topics and groups: every method of `twinlog.client.Admin`, blocking."""
        if self._admin is None:
            self._admin = self._clients.enter_context(sync.Admin(self.namesrv))
        return self._admin

    def producer(self, group: str = "test-producer", **options: Any) -> sync.Producer:
        """A started `twinlog.client.sync.Producer`."""
        return self._clients.enter_context(sync.Producer(self.namesrv, group, **options))

    def pull_consumer(self, group: str = "test-reader", **options: Any) -> sync.PullConsumer:
        """A started `twinlog.client.sync.PullConsumer`."""
        return self._clients.enter_context(sync.PullConsumer(self.namesrv, group, **options))

    def poll_consumer(self, group: str, topic: str, expression: str = "*", **options: Any) -> sync.PollConsumer:
        """A started `twinlog.client.sync.PollConsumer` that begins with the topic's first message."""
        options.setdefault("consumer_options", _FROM_FIRST)
        consumer = sync.PollConsumer(self.namesrv, group, **options)
        consumer.subscribe(topic, expression)
        return self._clients.enter_context(consumer)

    def push_consumer(
        self, group: str, topic: str, listener: Any, expression: str = "*", **options: Any
    ) -> sync.PushConsumer:
        """A started `twinlog.client.sync.PushConsumer` that begins with the topic's first message."""
        options.setdefault("consumer_options", _FROM_FIRST)
        consumer = sync.PushConsumer(self.namesrv, group, listener, **options)
        consumer.subscribe(topic, expression)
        return self._clients.enter_context(consumer)

    def async_producer(self, group: str = "test-producer", **options: Any) -> client.Producer:
        """A `twinlog.client.Producer` for `async with`."""
        return client.Producer(self.namesrv, group, **options)

    def async_push_consumer(
        self, group: str, topic: str, listener: Any, expression: str = "*", **options: Any
    ) -> client.PushConsumer:
        """A `twinlog.client.PushConsumer` for `async with`, which begins with the topic's first message."""
        options.setdefault("consumer_options", _FROM_FIRST)
        consumer = client.PushConsumer(self.namesrv, group, listener, **options)
        consumer.subscribe(topic, expression)
        return consumer

    def async_poll_consumer(self, group: str, topic: str, expression: str = "*", **options: Any) -> client.PollConsumer:
        """A `twinlog.client.PollConsumer` for `async with`, which begins with the topic's first message."""
        options.setdefault("consumer_options", _FROM_FIRST)
        consumer = client.PollConsumer(self.namesrv, group, **options)
        consumer.subscribe(topic, expression)
        return consumer

    def async_pull_consumer(self, group: str = "test-reader", **options: Any) -> client.PullConsumer:
        """A `twinlog.client.PullConsumer` for `async with`."""
        return client.PullConsumer(self.namesrv, group, **options)

    def async_admin(self, **options: Any) -> client.Admin:
        """A `twinlog.client.Admin` for `async with`."""
        return client.Admin(self.namesrv, **options)

    # -- messages ------------------------------------------------------------------------------

    def seed(
        self, topic: str, messages: Iterable[Outgoing | bytes | str], *, queues: int | None = None
    ) -> list[SendResult]:
        """Store messages, the first in the first queue, the next in the next one, and so on.

        With `queues` the topic is created with so many first. Bodies alone will do.
        """
        if queues is not None:
            self.admin.create_topic(topic, queues=queues)
        with sync.Producer(self.namesrv, "test-seed") as producer:
            places = itertools.cycle(producer.queues(topic))
            return [
                producer.send(
                    message if isinstance(message, Outgoing) else Outgoing(topic, message),
                    queue=None if isinstance(message, Outgoing) and message.topic != topic else next(places),
                )
                for message in messages
            ]

    def messages(self, topic: str) -> list[Message]:
        """Everything that `topic` holds now, queue by queue; nothing for a topic that does not exist."""
        found: list[Message] = []
        with sync.PullConsumer(self.namesrv, "test-reader", register=False) as reader:
            try:
                queues = reader.queues(topic)
            except NoRoute:
                return []
            for queue in queues:
                found += reader.messages(queue, reader.min_offset(queue), reader.max_offset(queue))
        return found

    # -- time ----------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers, without waiting: delayed messages and timers within it are delivered now."""
        self.cluster.advance(seconds)

    def wait_for(self, condition: Callable[[], T], seconds: float = 20.0, what: str = "") -> T:
        """What `condition` returns, once that is true; AssertionError with its last value after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                name = what or getattr(condition, "__name__", "the condition")
                raise AssertionError(f"{name} did not hold within {seconds:g} s; its last value: {found!r}")
            time.sleep(_LOOK_SECONDS)
        return found

    def wait_for_messages(self, topic: str, count: int, seconds: float = 20.0) -> list[Message]:
        """The messages of `topic`, once there are `count` or more."""
        found: list[Message] = []

        def enough() -> bool:
            found[:] = self.messages(topic)
            return len(found) >= count

        self.wait_for(enough, seconds, f"{count} messages in {topic}")
        return found

    def wait_replicated(self, seconds: float = 20.0) -> None:
        """Return once every replica has all messages, topics and groups of its master."""
        for replica in self.replicas:
            (master,) = [each for each in self.cluster.masters if each.name == replica.name]
            self.wait_for(
                lambda master=master, replica=replica: replica.follows(master),
                seconds,
                f"{replica.name}:{replica.broker_id} has the master's log",
            )


class BrokerFactory:
    """Starts clusters that stop when the factory is closed."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __call__(
        self,
        *,
        brokers: int = 1,
        replicas: int = 0,
        settings: Mapping[str, Setting] | None = None,
        prefix: str = "",
        directory: str | None = None,
    ) -> TwinlogBroker:
        """A running cluster: so many brokers with so many replicas each; `settings` are broker.conf keys of all.

        With a `directory` its files stay, and another cluster may be started on them.
        """
        cluster = LocalCluster(brokers=brokers, replicas=replicas, settings=settings, directory=directory)
        self._stack.enter_context(cluster)
        return self._stack.enter_context(TwinlogBroker(cluster, prefix))

    def close(self) -> None:
        self._stack.close()
