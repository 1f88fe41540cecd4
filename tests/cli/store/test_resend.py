"""`twinlog store resend`: a tail that was cut off comes back, each message once."""

import asyncio

import pytest
from tests.broker.running import connected, pull
from tests.replication.cluster import end_of, running_cluster
from typer.testing import CliRunner

from twinlog.cli.replication.rejoin import cut_tail
from twinlog.cli.store.app import store as command
from twinlog.client import Outgoing, Producer
from twinlog.wire.message import decode_messages


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def run(*arguments):
    return await asyncio.to_thread(CliRunner().invoke, command, [str(argument) for argument in arguments])


async def send(names, numbers):
    async with Producer(names, "PG") as producer:
        for number in numbers:
            await producer.send(Outgoing("T", b"%d" % number, tags="a", keys=["k"], properties={"own": "x"}))


async def test_the_messages_of_a_tail_are_sent_once(cluster):
    broker = await cluster.start("broker")
    await send(cluster.names, range(10))
    cut = end_of(broker)
    await send(cluster.names, range(10, 15))
    settings = broker.conf.store
    await cluster.stop("broker")
    tail = cut_tail(settings, cut)
    broker = await cluster.start("broker")

    shown = await run("dump", tail, "--body")
    assert shown.exit_code == 0 and shown.output.count("physical_offset") == 5
    dry = await run("resend", tail, "-n", cluster.names, "--dry-run")
    assert dry.exit_code == 0 and "5 would be sent, 0 are there already, 0 left out" in dry.output
    other = await run("resend", tail, "-n", cluster.names, "--topic", "Another")
    assert other.exit_code == 0 and "0 sent" in other.output
    done = await run("resend", tail, "-n", cluster.names)
    assert done.exit_code == 0 and "5 sent, 0 are there already, 0 left out" in done.output, done.output
    again = await run("resend", tail, "-n", cluster.names)
    assert again.exit_code == 0 and "0 sent, 5 are there already, 0 left out" in again.output
    async with Producer(cluster.names, "PG") as producer:
        queues = await producer.queues("T")
    bodies = []
    for queue in queues:
        bodies += await messages_of(broker, queue.queue_id)
    assert sorted(int(one.body) for one in bodies) == list(range(15))
    last = next(one for one in bodies if one.body == b"14")
    assert (last.tags, last.keys, last.properties["own"]) == ("a", ["k"], "x")


async def messages_of(broker, queue_id):
    async with connected(broker) as connection:
        answer = await pull(connection, topic="T", queueId=str(queue_id), queueOffset="0", sysFlag="4", maxMsgNums="99")
    return decode_messages(answer.body or b"") if answer.code == 0 else []


async def test_a_file_that_is_not_a_tail_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"1")
    for words in (("resend", tmp_path / "x"), ("dump", tmp_path / "x")):
        result = await run(*words)
        assert result.exit_code == 2 and "is not a tail that was set aside" in result.output
