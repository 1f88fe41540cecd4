"""What waits in a store goes on waiting when another implementation takes over: timers, and open transactions.

A timer message that was delivered before the change may come again when Java takes over: it keeps pending timers in
files of its own, which we do not write, and parks everything anew from the lowest pending message on.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.broker.running import PULL_FIELDS, send
from tests.interop.clusters import implementation

from twinlog.net.connection import Connection, ConnectionOptions, Request
from twinlog.net.pool import connect
from twinlog.wire.codes import RequestCode
from twinlog.wire.message import decode_message, decode_messages

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]
TAKE_OVERS = [("twinlog", "java-5.5.0"), ("java-5.5.0", "twinlog")]
BEAT = b'{"clientID":"p@1","consumerDataSet":[],"producerDataSet":[{"groupName":"PG"}]}'
WAIT_S = 45  # a Java broker needs most of it to stop and start


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize(("writer", "reader"), TAKE_OVERS, ids=lambda name: name)
def test_timers_and_open_transactions_survive_a_change_of_hands(writer: str, reader: str, ending: str, tmp_path: Path):
    with implementation("twinlog").name_server(tmp_path / "names") as names:
        with implementation(writer).broker(tmp_path / "broker", names.address) as broker:
            due_ms = asyncio.run(write(broker.address))
            if ending == "clean":
                broker.stop()
        with implementation(reader).broker(tmp_path / "broker", names.address) as broker:
            found = asyncio.run(read(broker.address))
    bodies = Counter(body for body, _ in found)
    assert set(bodies) == {b"soon", b"late", b"half"}
    assert bodies[b"late"] == 1
    if reader == "twinlog" and ending == "clean":
        assert bodies[b"soon"] == 1
    assert min(stored_ms for body, stored_ms in found if body == b"late") >= due_ms


async def write(address: str) -> int:
    """One timer that is delivered before the change, one that is due after it, and a transaction left open."""
    connection = await connect(address, ConnectionOptions())
    await connection.request(RequestCode.HEART_BEAT, body=BEAT, timeout_ms=30_000)
    due_ms = now_ms() + WAIT_S * 1000
    for body, pairs in (
        (b"soon", {"TIMER_DELIVER_MS": str(now_ms() + 2_000), "UNIQ_KEY": "SOON"}),
        (b"late", {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "LATE"}),
    ):
        assert (await send(connection, body, g=str(now_ms()), i=properties(pairs))).code == 0
    await messages_until(connection, {b"soon"}, 90)
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "HALF"}
    assert (await send(connection, b"half", f="4", g=str(now_ms()), i=properties(pairs))).code == 0
    await asyncio.sleep(1.5)  # progress is written down once a second
    connection.close()
    return due_ms


async def read(address: str) -> list[tuple[bytes, int]]:
    """Commit the open transaction when asked, and wait for everything."""
    connections: list[Connection] = []

    def commit(request: Request) -> None:
        assert request.body is not None and request.fields is not None
        assert decode_message(request.body).body == b"half"
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": request.fields["tranStateTableOffset"],
            "commitLogOffset": request.fields["commitLogOffset"],
            "commitOrRollback": "8",
            "fromTransactionCheck": "true",
            "msgId": "HALF",
        }
        connections[0].oneway(RequestCode.END_TRANSACTION, fields)

    connection = await connect(address, ConnectionOptions(handlers={RequestCode.CHECK_TRANSACTION_STATE: commit}))
    connections.append(connection)
    await connection.request(RequestCode.HEART_BEAT, body=BEAT, timeout_ms=30_000)
    found = await messages_until(connection, {b"soon", b"late", b"half"}, WAIT_S + 120)
    connection.close()
    return found


async def messages_until(connection: Connection, wanted: set[bytes], seconds: float) -> list[tuple[bytes, int]]:
    """(body, store time) of all messages of the queue, once the wanted ones are there."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await connection.request(RequestCode.PULL_MESSAGE, PULL_FIELDS, timeout_ms=30_000)
            found = decode_messages(answer.body or b"") if answer.code == 0 else []
            if wanted <= {message.body for message in found}:
                return [(message.body, message.store_timestamp) for message in found]
            await asyncio.sleep(0.5)


def properties(pairs: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def now_ms() -> int:
    return int(time.time() * 1000)
