"""A broker's context over a store of its own, without ports or tasks, and connections without sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.broker.running import broker_conf

from twinlog.broker.broker import Broker
from twinlog.broker.context import BrokerContext
from twinlog.broker.opening import load_tables, open_filters
from twinlog.broker.sends import parking
from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.wire.command import Command, decode_command
from twinlog.wire.frame import take_frame
from twinlog.wire.values.message_id import UniqueIds

NOW_MS = 1_700_000_000_000


@contextlib.contextmanager
def open_context(root: Path, now_ms: int = NOW_MS, **settings: object) -> Iterator[BrokerContext]:
    """The context of a broker at a fixed time, listening nowhere."""
    broker = Broker(broker_conf(root, **{"listenPort": 20911, **settings}), wall_ms=lambda: now_ms, ticks_ns=lambda: 0)
    tables = load_tables(broker.conf, now_ms)
    filters = open_filters(broker.conf, tables, now_ms)
    with broker._open_store(tables, filters) as store:
        ctx = broker._make_context(tables, store, filters)
        ctx.unique_ids = UniqueIds(seed=1)
        parking.install(ctx)
        yield ctx


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5555)

    def take_answers(self) -> list[Command]:
        answers = []
        while frame := take_frame(self.data):
            answers.append(decode_command(frame))
        return answers


def wired(options: ConnectionOptions, clock: Callable[[], float] = lambda: 0.0) -> tuple[Connection, Written]:
    """A connection whose peer is the test; needs a running loop. All that it receives is handled within one turn."""
    options.inbound.turns.clock = clock
    connection, transport = Connection(options), Written()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport
