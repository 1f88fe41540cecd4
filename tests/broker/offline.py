"""A broker context without sockets, and requests to its handlers, from golden frames or made up."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.running import broker_conf
from tests.wire import vectors

from twinlog.broker.clients.client_table import ClientTable
from twinlog.broker.clients.lock_table import LockTable
from twinlog.broker.context import BrokerContext
from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.broker.sends.copy_budget import CopyBudget
from twinlog.broker.topics.auto_created import AutoCreated
from twinlog.metadata.tables import open_tables
from twinlog.net.connection import Connection, Handler, Request
from twinlog.net.error_answers import answer_for_error
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.command import Command, decode_command
from twinlog.wire.frame import take_frame


class Wire:
    """Stands for a client's connection; `sent` is what the broker wrote to it on its own."""

    def __init__(self, name: str = "client") -> None:
        self.peer_text = f"{name}:1"
        self.peer = (name, 1)
        self.sent: list[tuple[int, dict[str, str] | None]] = []
        self.close_reason: object = None
        self.attributes: dict[str, object] = {}

    def oneway(self, code: int, fields: dict[str, str] | None = None, body: bytes | None = None) -> None:
        self.sent.append((code, fields))

    def close(self, reason: object = None) -> None:
        self.close_reason = reason


class Clock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def context(root, *, store: object = None, **settings: object) -> BrokerContext:
    """A broker with a topic T of four queues and a group G; its tables live below `root`."""
    clock = Clock()
    tables = open_tables(root / "config", clock())
    nothing = cast(Any, None)
    ctx = BrokerContext(
        conf=broker_conf(root, **settings),
        store=cast(Any, store or SimpleNamespace(delete_topic=lambda topic: None, keeps_delay_offsets=True)),
        tables=tables,
        clients=ClientTable(),
        locks=LockTable(),
        holds=nothing,
        pending_sends=nothing,
        stats=nothing,
        copy_budget=CopyBudget(),
        auto_topics=AutoCreated(tables.topics),
        auto_groups=AutoCreated(tables.groups),
        consumer_filters=ConsumerFilters(tables.filters, BloomFilter(20, 32), clock()),
        clock_ms=clock,
        wall_ms=clock,
        started_ms=clock(),
    )
    tables.topics.seed("T", TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    tables.groups.seed("G", SubscriptionGroupConfig(group_name="G"))
    return ctx


def golden(name: str) -> Command:
    """A command that a real Java peer sent."""
    frame = take_frame(bytearray(vectors.data(name)))
    assert frame is not None
    return decode_command(frame)


def ask(
    handlers: dict[int, Handler],
    command: Command | int,
    fields: dict[str, str] | None = None,
    body: bytes | None = None,
    wire: Wire | None = None,
) -> Command:
    """The answer to a request, errors included, as `net` would give it."""
    request = asked(command, fields, body, wire)
    try:
        answer = handlers[request.code](request)
        if inspect.isawaitable(answer):
            with ThreadPoolExecutor(1) as thread:  # the test may have a running loop itself
                answer = thread.submit(asyncio.run, _wait(answer)).result()
    except Exception as error:
        answer = answer_for_error(request, error)
    assert isinstance(answer, Command)
    assert answer.is_response
    assert answer.opaque == request.opaque
    return answer


def asked(
    command: Command | int, fields: dict[str, str] | None = None, body: bytes | None = None, wire: Wire | None = None
) -> Request:
    """A request as a handler gets it."""
    made = command if isinstance(command, Command) else Command(command, 7, fields=fields, body=body)
    members = {name: getattr(made, name) for name in Command.__slots__}
    return Request(**members, connection=cast(Connection, wire or Wire()))


async def _wait(answer):
    return await answer
