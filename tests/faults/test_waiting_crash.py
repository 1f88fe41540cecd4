"""A broker is killed while delayed messages and timers wait: all that was acknowledged comes, none too early."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from tests.broker.running import PULL_FIELDS, send
from tests.interop.twinlog_servers import Twinlog

from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.net.errors import NetError
from twinlog.net.pool import connect
from twinlog.wire.codes import RequestCode
from twinlog.wire.message import Message, decode_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
KILLS = 3
LEVEL_MS = {1: 1_000, 2: 2_000}  # of the configuration that interop brokers share


def test_every_acknowledged_message_comes_at_or_after_its_time_however_often_the_broker_dies(tmp_path: Path):
    rng = random.Random(20261115)
    due_ms: dict[bytes, int] = {}  # body -> earliest time it may be delivered
    with Twinlog().name_server(tmp_path / "names") as names:
        for _ in range(KILLS):
            with Twinlog().broker(tmp_path / "broker", names.address) as broker:
                asyncio.run(send_for_a_while(broker.address, due_ms, rng))
                # leaving `with` kills the process
        with Twinlog().broker(tmp_path / "broker", names.address) as broker:
            found = asyncio.run(read_until(broker.address, set(due_ms)))
    early = [message.body for message in found if message.store_timestamp < due_ms.get(message.body, 0)]
    assert early == []


async def send_for_a_while(address: str, due_ms: dict[bytes, int], rng: random.Random) -> None:
    connection = await connect(address, ConnectionOptions())
    stop_at = time.monotonic() + 2.0
    while time.monotonic() < stop_at:
        body, sent_ms = b"%d" % len(due_ms), now_ms()
        if rng.random() < 0.5:
            level = rng.choice(list(LEVEL_MS))
            wish, due = f"DELAY\x01{level}\x02", sent_ms + LEVEL_MS[level]
        else:
            due = sent_ms + rng.randrange(200, 4_000)
            wish = f"TIMER_DELIVER_MS\x01{due}\x02"
        try:
            answer = await send(connection, body, g=str(sent_ms), i=wish)
        except NetError:
            break
        assert answer.code == 0, answer.remark
        due_ms[body] = due
        await asyncio.sleep(0.002)
    connection.close()


async def read_until(address: str, wanted: set[bytes]) -> list[Message]:
    """All messages of the queue, once everything that was acknowledged is among them."""
    connection = await connect(address, ConnectionOptions())
    found: list[Message] = []
    async with asyncio.timeout(60):
        while not wanted <= {message.body for message in found}:
            found += await pull_on(connection, len(found))
    connection.close()
    return found


async def pull_on(connection: Connection, offset: int) -> list[Message]:
    answer = await connection.request(
        RequestCode.PULL_MESSAGE, {**PULL_FIELDS, "queueOffset": str(offset)}, timeout_ms=10_000
    )
    if answer.code != 0:
        await asyncio.sleep(0.1)
        return []
    return decode_messages(answer.body or b"")


def now_ms() -> int:
    return int(time.time() * 1000)
