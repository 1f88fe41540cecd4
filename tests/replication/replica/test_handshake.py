"""What a replica learns from its master before it joins it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.replication.test_services import open_store
from tests.store.store_at import fill

from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.replication.errors import ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.replica.handshake import Handshake, MasterFacts
from twinlog.replication.replica.join import LogRange
from twinlog.wire.bodies import KVTable, encode_body
from twinlog.wire.twinlog_codes import TwinlogCode


@contextlib.asynccontextmanager
async def java_master(home: Path, ends: dict[str, str], conf: bytes | None) -> AsyncIterator[Handshake]:
    """A master that knows what Java knows; without `conf` it shows no configuration."""
    handlers = {28: lambda request: request.reply(body=encode_body(KVTable(table=ends)))}
    if conf is not None:
        handlers[26] = lambda request: request.reply(body=conf)
    server, pool = Server(handlers), ConnectionPool()
    await server.start("127.0.0.1", 0)
    with open_store(home, "SLAVE") as store:
        yield Handshake(pool, f"127.0.0.1:{server.port}", store)
    await pool.close()
    await server.stop()


def ends(begin: int, end: int) -> dict[str, str]:
    return {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end)}


@pytest.mark.parametrize(
    ("conf", "segment_bytes"),
    [
        (b"listenPort=1\nmappedFileSizeCommitLog=1048576\n", 1 << 20),
        (b"mapedFileSizeCommitLog=4096\n", 4096),
        (b"mappedFileSizeCommitLog=large\n", None),
        (b"\xff", None),
        (None, None),
    ],
)
async def test_the_size_of_a_java_masters_files_is_in_its_configuration(tmp_path, conf, segment_bytes):
    async with java_master(tmp_path, ends(0, 500), conf) as handshake:
        assert await handshake.facts(HelloHeader()) == MasterFacts(LogRange(0, 500), segment_bytes=segment_bytes)


async def test_a_java_masters_empty_log_is_empty_although_it_begins_at_minus_one(tmp_path):
    async with java_master(tmp_path, ends(-1, 0), None) as handshake:
        assert (await handshake.facts(HelloHeader())).log.is_empty


@pytest.mark.parametrize("table", [{}, {"commitLogMinOffset": "0", "commitLogMaxOffset": "x"}])
async def test_a_master_that_does_not_return_the_bounds_of_its_log_is_not_joined(tmp_path, table):
    async with java_master(tmp_path, table, None) as handshake:
        with pytest.raises(ReplicationError, match="returns invalid bounds of its log"):
            await handshake.facts(HelloHeader())


async def test_bytes_that_the_master_does_not_hold_any_more_are_not_a_difference(tmp_path):
    """Seen to fail: retention on the master made both logs differ, and with failover this one was cut."""
    server, pool = Server({TwinlogCode.LOG_DIGESTS: lambda request: request.reply(body=b"[null]")}), ConnectionPool()
    await server.start("127.0.0.1", 0)
    with open_store(tmp_path, "ASYNC_MASTER") as store:
        fill(store, 5)
        handshake = Handshake(pool, f"127.0.0.1:{server.port}", store)
        with pytest.raises(ReplicationError, match="does not hold the bytes"):
            await handshake.compare(MasterFacts(LogRange(0, store.log_end), pass_number=1))
    await pool.close()
    await server.stop()
