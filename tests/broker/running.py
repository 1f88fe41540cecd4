"""A whole broker inside the test's own event loop, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from twinlog.broker.broker import Broker
from twinlog.broker.embedded import empty_disk
from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.net.pool import connect
from twinlog.settings.broker_conf import BrokerConf, load_broker_conf
from twinlog.wire.command import Command
from twinlog.wire.message import Message, decode_messages


def broker_conf(root: Path, **settings: object) -> BrokerConf:
    """Settings of a small broker on loopback; keys as in broker.conf."""
    given = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": 0,
        "storePathRootDir": root,
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **settings,
    }
    text = "".join(f"{key}={_text(value)}\n" for key, value in given.items())
    return load_broker_conf(text=text, environment={})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.asynccontextmanager
async def running_broker(conf: BrokerConf) -> AsyncIterator[Broker]:
    """`conf` as a broker that is ready; stopped and closed afterwards."""
    ready = asyncio.Event()
    broker = Broker(conf, disk_ratio=empty_disk, on_ready=lambda _: ready.set())
    task = asyncio.create_task(broker.run())
    waiting = asyncio.create_task(ready.wait())
    done, _ = await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if task in done:
            task.result()
        yield broker
    finally:
        waiting.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def connected(broker: Broker, port_below: int = 0) -> AsyncIterator[Connection]:
    port = broker.conf.broker.listen_port - port_below
    connection = await connect(f"127.0.0.1:{port}", ConnectionOptions())
    try:
        yield connection
    finally:
        connection.close()


SEND_FIELDS = {
    "a": "PG",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
PULL_FIELDS = {
    "consumerGroup": "CG",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


async def send(connection: Connection, body: bytes | None = b"hello", code: int = 310, **fields: str) -> Command:
    """The answer to a send; keyword arguments are members of the short header."""
    return await connection.request(code, {**SEND_FIELDS, **fields}, body)


async def pull(connection: Connection, code: int = 11, timeout_ms: int = 3000, **fields: str) -> Command:
    return await connection.request(code, {**PULL_FIELDS, **fields}, timeout_ms=timeout_ms)


async def pull_messages(connection: Connection, **fields: str) -> list[Message]:
    answer = await pull(connection, **fields)
    assert answer.code == 0, answer.remark
    return decode_messages(answer.body or b"")
