"""A replica that is connected and says nothing: sends wait for it once, and not again until it reports."""

import asyncio
import socket
from dataclasses import replace

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import status, until

from twinlog.client import ProducerOptions
from twinlog.settings.replication import ReplicationSettings

OK, NOT_AVAILABLE, TIMEOUT = 0, 11, 12


def test_the_answer_to_a_send_that_waited_leaves_before_its_client_gives_up():
    assert ReplicationSettings().ack_timeout_ms <= ProducerOptions().send_timeout_ms - 500


@pytest.fixture
async def master(tmp_path):
    conf = broker_conf(tmp_path, brokerRole="SYNC_MASTER")
    async with running_broker(conf) as broker:
        yield broker


class Replica:
    """A Java replica in a few lines, which reports when the test says so."""

    def __init__(self, master, connection):
        self._master, self._socket = master, connection

    async def report(self):
        end = self._master.context.store.log_end
        views = self._master.replication.master.views
        await until(lambda: views()[0].next_offset == end, "the master has sent everything")
        self._socket.sendall(end.to_bytes(8, "big"))
        await until(lambda: self._master.replication.master.acks.acks() == [end], "the report has arrived")


async def test_one_send_waits_for_a_silent_replica_and_the_next_ones_are_answered_at_once(master):
    waits: list[int] = []
    hold = master.context.pending_sends._waiting.add

    def counted(end, *args, **more):
        waits.append(end)
        hold(end, *args, **more)

    master.context.pending_sends._waiting.add = counted
    with socket.create_connection(("127.0.0.1", master.replication.master.port)) as connection:
        connection.sendall(bytes(8))
        replica = Replica(master, connection)
        await until(lambda: any(row.usable for row in master.replication.master.acks.rows()), "it has reported")
        async with connected(master) as client:

            async def acknowledged(body):
                be_patient(master, 60_000)
                answer = asyncio.create_task(send(client, body))
                await until(lambda: master.context.pending_sends.waits_for_replicas, "the send waits")
                await replica.report()
                return (await answer).code

            assert await acknowledged(b"replicated") == OK
            be_patient(master, 200)
            assert (await send(client, b"nobody reports")).code == TIMEOUT
            before = len(waits)
            assert [(await send(client, b"at once")).code for _ in range(5)] == [NOT_AVAILABLE] * 5
            assert len(waits) == before, "none of them waited"
            await replica.report()
            assert await acknowledged(b"it is back") == OK
            assert len(waits) == before + 1, "sends wait for it again"


def be_patient(master, ack_timeout_ms):
    ctx = master.context
    ctx.conf = replace(ctx.conf, replication=replace(ctx.conf.replication, ack_timeout_ms=ack_timeout_ms))


def change(master, **settings):
    ctx = master.context
    ctx.conf = replace(ctx.conf, replication=replace(ctx.conf.replication, **settings))


class Silent:
    """Connections that report the empty log and nothing more: replicas whose processes are stopped."""

    def __init__(self, master, count):
        self._master = master
        self.connections = [
            socket.create_connection(("127.0.0.1", master.replication.master.port)) for _ in range(count)
        ]

    async def __aenter__(self):
        for connection in self.connections:
            connection.sendall(bytes(8))
        rows = self._master.replication.master.acks.rows
        await until(lambda: sum(row.usable for row in rows()) == len(self.connections), "all have reported")
        return self

    async def __aexit__(self, *_):
        for connection in self.connections:
            connection.close()


async def answer_reports(connection):
    """A replica that keeps up, in a few lines: reports each byte that it gets."""
    loop, buffer, at = asyncio.get_running_loop(), bytearray(), 0
    connection.setblocking(False)
    while data := await loop.sock_recv(connection, 1 << 20):
        buffer += data
        while len(buffer) >= 12 and len(buffer) >= 12 + (size := int.from_bytes(buffer[8:12], "big")):
            at = int.from_bytes(buffer[:8], "big") + size
            del buffer[: 12 + size]
        await loop.sock_sendall(connection, at.to_bytes(8, "big"))


async def test_with_two_replicas_the_healthy_one_is_enough_and_the_hung_one_is_counted_out(master):
    """Seen to fail when `ReplicaAcks.tick` marks nobody: the hung replica stays in sync until it is disconnected."""
    change(master, ack_timeout_ms=60_000, not_caught_up_ms_max=300)
    async with Silent(master, 2) as replicas, connected(master) as client:
        healthy = asyncio.create_task(answer_reports(replicas.connections[0]))
        codes = [(await send(client, b"x")).code for _ in range(20)]
        assert codes == [OK] * 20, "none waited for the hung one"
        acks, end = master.replication.master.acks, master.context.store.log_end
        await until(lambda: acks.in_sync(end, 1 << 20) == 1, "the hung one is not in sync")
        assert [view["inSync"] for view in (await status(master))["replicas"]] == [True, False]
        assert master.replication.send_demand.counted_out == 1
        second = asyncio.create_task(answer_reports(replicas.connections[1]))
        await until(lambda: acks.in_sync(end, 1 << 20) == 2, "it caught up")
        healthy.cancel(), second.cancel()


@pytest.mark.parametrize(("least", "code"), [(1, OK), (2, NOT_AVAILABLE)])
async def test_sends_go_on_without_a_hung_replica_as_far_as_the_minimum_allows(master, least, code):
    """Seen to fail when `SendDemand.tick` does not adapt: the first send waits until it times out."""
    change(master, ack_timeout_ms=60_000, not_caught_up_ms_max=300, in_sync_adapts=True, in_sync_replicas_min=least)
    async with Silent(master, 1), connected(master) as client:
        waits = asyncio.create_task(send(client, b"waits for it"))
        await until(lambda: master.replication.send_demand.counted_out == 1, "it is counted out")
        if least == 1:
            assert (await waits).code == OK, "the master alone is enough"
        assert (await send(client, b"next")).code == code
