"""Messages looked up by an administrator, in brokers that run in the test's own loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.running import connected, send
from tests.replication.cluster import running_cluster

from twinlog.client import Admin

STORED, NEWEST = 70, 64  # maxMsgsNumBatch


@pytest.mark.parametrize(("asked", "given"), [(500, NEWEST), (3, 3)])
async def test_a_query_by_key_asks_every_broker_for_its_newest(tmp_path: Path, asked: int, given: int):
    async with running_cluster(tmp_path) as cluster:
        for name in ("broker-a", "broker-b"):
            broker = await cluster.start(name, brokerName=name)
            async with connected(broker) as connection:
                bodies = [b"%s %d" % (name.encode(), number) for number in range(STORED)]
                await asyncio.gather(*(send(connection, body, i="KEYS\x01K\x02") for body in bodies))
                assert broker.context.wait_until_announced is not None
                await broker.context.wait_until_announced()
        async with Admin(cluster.names) as admin:
            found = await admin.messages_by_key("T", "K", count_max=asked)
            assert await admin.messages_by_key("T", "nobody") == []
            located = await admin.located_by_key("T", "K", count_max=asked)
        assert [message for _, message in located] == found
        assert all(queue.broker_name.encode() == message.body.split()[0] for queue, message in located)
        times = [message.store_timestamp for message in found]
        assert times == sorted(times)
        for name in (b"broker-a", b"broker-b"):
            numbers = [int(message.body.split()[1]) for message in found if message.body.startswith(name)]
            assert numbers == list(range(STORED - given, STORED))
