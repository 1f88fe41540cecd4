"""A broker context over a real store in a temporary directory, with a clock that only the test moves."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from tests.broker.offline import Clock
from tests.broker.running import broker_conf

from twinlog.broker.clients.client_table import ClientTable
from twinlog.broker.clients.lock_table import LockTable
from twinlog.broker.context import BrokerContext
from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.broker.pulls.hold import HoldTable
from twinlog.broker.sends.copy_budget import CopyBudget
from twinlog.broker.sends.pending_sends import PendingSends
from twinlog.broker.stats.stats import BrokerStats
from twinlog.broker.topics.auto_created import AutoCreated
from twinlog.broker.topics.topic_creation import seed_tables
from twinlog.metadata.tables import open_tables
from twinlog.store.log.append import Appended, Draft
from twinlog.store.message_store import MessageStore
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.message import Message, decode_messages
from twinlog.wire.properties import encode_properties

NOW = 1_800_000_000_000


@contextlib.contextmanager
def stored_context(
    root: Path, clock: Clock | None = None, *, wall: Clock | None = None, **settings: object
) -> Iterator[BrokerContext]:
    """A master with a topic T of four queues and a group G; opening the same `root` again is a restart.

    `clock` is the steady one; `wall`, which stamps records, is the same unless it is given.
    """
    clock = clock or Clock(NOW)
    wall = wall or clock
    conf = broker_conf(root, **settings)
    conf = dataclasses.replace(conf, broker=dataclasses.replace(conf.broker, listen_port=10911))
    tables = open_tables(root / "config", clock())
    seed_tables(tables.topics, tables.groups, conf.broker, conf.store)
    tables.topics.seed("T", TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    tables.groups.seed("G", SubscriptionGroupConfig(group_name="G"))
    tables.load()
    store = MessageStore.open(conf.store, role=conf.broker.broker_role, clock_ms=wall)
    with store:
        ctx = BrokerContext(
            conf=conf,
            store=store,
            tables=tables,
            clients=ClientTable(),
            locks=LockTable(),
            holds=HoldTable(),
            pending_sends=PendingSends(lambda: ctx.conf, clock),
            stats=BrokerStats(clock(), conf.broker.cluster_name),
            copy_budget=CopyBudget(),
            auto_topics=AutoCreated(tables.topics),
            auto_groups=AutoCreated(tables.groups),
            consumer_filters=ConsumerFilters(tables.filters, BloomFilter(20, 32), clock()),
            clock_ms=clock,
            wall_ms=wall,
            started_ms=clock(),
        )
        yield ctx
        tables.save()


def put(ctx: BrokerContext, body: bytes = b"hello", topic: str = "T", queue_id: int = 0, **pairs: str) -> Appended:
    """Store a message as a send would, with these properties."""
    appended = ctx.put(Draft(topic, queue_id, body, encode_properties(pairs), ("127.0.0.1", 4711), ctx.clock_ms()))
    assert appended.ok, appended
    return appended


def messages(ctx: BrokerContext, topic: str = "T", queue_id: int = 0) -> list[Message]:
    """Everything that a consumer of the queue finds."""
    found = ctx.store.read(topic, queue_id, ctx.store.min_offset(topic, queue_id), count_max=32)
    return decode_messages(b"".join(found.buffers))


def bodies(ctx: BrokerContext, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in messages(ctx, topic, queue_id)]
