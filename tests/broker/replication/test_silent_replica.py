"""A replica that is connected and says nothing: sends wait for it once, and not again until it reports."""

import asyncio
import socket
from dataclasses import replace

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import until

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
