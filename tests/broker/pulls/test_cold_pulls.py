"""Requests for messages that are on disk only: the loop goes on, and all checks are made again."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest
from tests.broker.running import broker_conf, connected, pull, pull_messages, running_broker, send

from twinlog.store import readable_store
from twinlog.store.log import log_access
from twinlog.wire.message import decode_messages

FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


class SlowDisk:
    """Nothing is in memory, and a read takes until it is released."""

    def __init__(self) -> None:
        self.reads = 0
        self.released = threading.Event()
        self.error: OSError | None = None

    def read_through(self, descriptor: int, position: int, size: int) -> None:
        self.reads += 1
        self.released.wait()
        if self.error is not None:
            raise self.error

    async def is_read(self, count: int = 1) -> None:
        async with asyncio.timeout(10):
            while self.reads < count:
                await asyncio.sleep(0.001)


@pytest.fixture
def disk(monkeypatch):
    disk = SlowDisk()
    monkeypatch.setattr(log_access, "read_through", disk.read_through)
    monkeypatch.setattr(log_access, "bytes_in_memory", lambda *_: 0)
    monkeypatch.setattr(readable_store, "RECENT_BYTES", 0)
    yield disk
    disk.released.set()


@pytest.fixture
async def broker(tmp_path, disk):
    async with running_broker(broker_conf(tmp_path, enablePropertyFilter=True)) as running:
        yield running
        disk.released.set()


async def begun(disk: SlowDisk, connection, **fields: str) -> asyncio.Task:
    """A pull whose messages a thread is reading."""
    task = asyncio.create_task(pull(connection, timeout_ms=20_000, **fields))
    await disk.is_read()
    return task


async def test_sends_and_other_requests_are_answered_while_a_pull_waits_for_the_disk(disk, connection):
    await send(connection, b"old")
    waiting = await begun(disk, connection)
    assert (await send(connection, b"new")).code == 0
    assert (await connection.request(30, {"topic": "T", "queueId": "0"})).fields == {"offset": "2"}
    assert not waiting.done()
    disk.released.set()
    answer = await waiting
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert decode_messages(answer.body)[0].body == b"old"


async def test_a_pull_of_new_messages_does_not_wait_for_the_disk(disk, broker, connection, monkeypatch):
    await send(connection, b"old")
    waiting = await begun(disk, connection)
    broker.context.store.opened_end = broker.context.store.log_end
    monkeypatch.setattr(readable_store, "RECENT_BYTES", 1 << 20)
    await send(connection, b"new")
    (message,) = await pull_messages(connection, queueOffset="1")
    assert message.body == b"new"
    disk.released.set()
    assert (await waiting).code == 0


async def test_a_pull_whose_topic_is_deleted_meanwhile_is_refused(disk, broker, connection):
    await send(connection)
    waiting = await begun(disk, connection)
    async with connected(broker) as other:
        assert (await other.request(215, {"topic": "T"})).code == 0
    disk.released.set()
    assert (await waiting).code == 17


async def test_a_pull_is_refused_by_a_broker_that_became_a_replica_meanwhile(disk, broker, connection):
    await send(connection)
    waiting = await begun(disk, connection)
    ctx = broker.context
    slave = dataclasses.replace(ctx.conf.broker, broker_role="SLAVE", replica_reads=False)
    master, ctx.conf = ctx.conf, dataclasses.replace(ctx.conf, broker=slave)
    disk.released.set()
    answer = await waiting
    ctx.conf = master
    assert answer.code == 2


async def test_an_offset_that_is_reset_meanwhile_is_answered_with_the_reset(disk, tmp_path):
    conf = broker_conf(tmp_path, useServerSideResetOffset=True)
    async with running_broker(conf) as broker, connected(broker) as connection:
        await send(connection)
        waiting = await begun(disk, connection)
        broker.context.offsets.reset("CG", "T", 0, 1, 0)
        disk.released.set()
        answer = await waiting
    assert (answer.code, answer.remark) == (21, "OFFSET_RESET")


async def test_a_pull_commits_its_offset_once_although_it_is_checked_twice(disk, broker, connection):
    await send(connection)
    waiting = await begun(disk, connection, sysFlag="5", commitOffset="1")
    assert broker.context.offsets.get("CG", "T", 0) is None
    disk.released.set()
    assert (await waiting).code == 0
    assert broker.context.offsets.get("CG", "T", 0) == 1


@pytest.mark.parametrize("fields", [{"subscription": "A"}, {"subscription": "n > 1", "expressionType": "SQL92"}])
async def test_filters_choose_the_same_messages_from_disk(disk, connection, fields):
    for number in range(4):
        await send(connection, b"%d" % number, i=f"TAGS\x01{'AB'[number % 2]}\x02n\x01{number}\x02")
    disk.released.set()
    bodies = [message.body for message in await pull_messages(connection, **fields)]
    assert disk.reads
    assert bodies == ([b"0", b"2"] if "expressionType" not in fields else [b"2", b"3"])


async def test_a_bad_sector_is_an_error_in_the_answer(disk, connection):
    await send(connection)
    disk.error = OSError(5, "bad sector")
    disk.released.set()
    answer = await pull(connection)
    assert answer.code == 1
    assert "bad sector" in (answer.remark or "")


async def test_a_peer_that_leaves_is_not_read_for(disk, broker):
    async with connected(broker) as sender, connected(broker) as reader:
        await send(sender)
        tasks = [asyncio.create_task(pull(reader, timeout_ms=20_000)) for _ in range(8)]
        await disk.is_read(2)
        work = broker.context.disk_work
        async with asyncio.timeout(10):
            while work.waiting < 6:
                await asyncio.sleep(0.001)
        reader.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(10):
            while not all(peer.closed for peer in work._waiting):
                await asyncio.sleep(0.001)
        disk.released.set()
        async with asyncio.timeout(10):
            while work.waiting:
                await asyncio.sleep(0.001)
    assert disk.reads == 2


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (12, {"topic": "T", "key": "K", "maxNum": "32", **FOREVER}),
        (33, {"offset": "0"}),
        (29, {"topic": "T", "queueId": "0", "timestamp": "1"}),
        (32, {"topic": "T", "queueId": "0"}),
    ],
    ids=["query", "view", "search", "earliest"],
)
async def test_requests_for_single_messages_do_not_hold_up_the_loop(disk, broker, connection, code, fields):
    await send(connection, b"old", i="KEYS\x01K\x02")
    waiting = asyncio.create_task(connection.request(code, fields, timeout_ms=20_000))
    await disk.is_read()
    assert (await send(connection)).code == 0
    assert not waiting.done()
    disk.released.set()
    answer = await waiting
    assert answer.code == 0, answer.remark
    if answer.body:
        assert [message.body for message in decode_messages(answer.body)] == [b"old"]


async def test_a_broker_stops_while_pulls_wait_for_the_disk(disk, tmp_path):
    conf = broker_conf(tmp_path)
    async with running_broker(conf) as broker, connected(broker) as connection:
        await send(connection, b"kept")
        tasks = [asyncio.create_task(pull(connection, timeout_ms=20_000)) for _ in range(8)]
        await disk.is_read()
        close = broker.context.disk_work.close

        def release_and_close() -> None:
            disk.released.set()
            close()

        broker.context.disk_work.close = release_and_close  # type: ignore[method-assign]
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, Exception)
    async with running_broker(conf) as broker, connected(broker) as connection:
        (message,) = await pull_messages(connection)
        assert message.body == b"kept"
