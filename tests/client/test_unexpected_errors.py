"""An unexpected error does not end a consumer: what failed is run again, and messages still come."""

from __future__ import annotations

import pytest
from tests.client.fake_cluster import until

from twinlog.client import ClientOptions, ConsumerOptions, Outgoing, Producer, PushConsumer, StartFrom
from twinlog.client.consuming import concurrent_consumer
from twinlog.client.consuming.assigned_queues import AssignedQueues
from twinlog.client.consuming.concurrent_consumer import ConcurrentConsumer
from twinlog.client.consuming.listener import Listener
from twinlog.client.consuming.queue_locks import QueueLocks
from twinlog.client.consuming.queue_worker import QueueWorker
from twinlog.client.routing.heartbeats import Heartbeats
from twinlog.client.routing.route_cache import RouteCache
from twinlog.telemetry import fence


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(fence, "PAUSE_S_MIN", 0.01)
    monkeypatch.setattr(concurrent_consumer, "_AGAIN_SECONDS", 0.01)


class FailingTwice:
    """Once armed, the method raises at its next two calls; `calls` counts those since."""

    def __init__(self, monkeypatch, owner: type, method: str) -> None:
        self.armed, self.calls = False, 0
        real = getattr(owner, method)

        async def wrapped(one, *args, **kwargs):
            self.calls += self.armed
            if self.armed and self.calls <= 2:
                raise KeyError("unexpected")
            return await real(one, *args, **kwargs)

        monkeypatch.setattr(owner, method, wrapped)


@pytest.mark.parametrize(
    ("owner", "method", "orderly"),
    [
        (QueueWorker, "_pull", False),
        (Listener, "call", False),
        (Listener, "call", True),
        (ConcurrentConsumer, "_consume_one", False),
        (AssignedQueues, "commit", False),
        (AssignedQueues, "rebalance", False),
        (RouteCache, "refresh_all", False),
        (Heartbeats, "send", False),
    ],
)
async def test_a_consumer_goes_on_after_an_unexpected_error(cluster, monkeypatch, caplog, owner, method, orderly):
    failing, got = FailingTwice(monkeypatch, owner, method), []

    async def listen(message):
        got.append(message.body)

    options = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=10, orderly=orderly)
    client = ClientOptions(heartbeat_ms=10, route_refresh_ms=10)
    consumer = PushConsumer(cluster.address, "group", listen, options=client, consumer_options=options)
    consumer.subscribe("T")
    sent = [f"{number}".encode() for number in range(8)]
    cluster.create("T")
    async with consumer, Producer(cluster.address, "g") as producer:
        failing.armed = True
        for body in sent:
            await producer.send(Outgoing("T", body))
        await until(lambda: consumer.rebalance_soon() or failing.calls > 2)
        await until(lambda: sorted(set(got)) == sent)
    errors = [record for record in caplog.records if record.exc_info]
    assert errors and all("a task failed unexpectedly" in record.getMessage() for record in errors)
    assert sum(end for (group, _), end in cluster.broker.offsets.items() if group == "group") >= len(sent)


async def test_locks_are_renewed_after_an_unexpected_error(cluster, monkeypatch):
    monkeypatch.setattr("twinlog.client.consuming.assigned_queues._RENEW_LOCKS_MS", 10)
    failing = FailingTwice(monkeypatch, QueueLocks, "acquire")

    async def listen(message):
        pass

    options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True)
    consumer = PushConsumer(cluster.address, "group", listen, consumer_options=options)
    consumer.subscribe("T")
    cluster.create("T")
    async with consumer:
        failing.armed = True
        await until(lambda: failing.calls > 4)
