"""What Twinlog's client learned from Java's: message trace, recall, polling, with a Java 5.5.0 broker and with ours."""

from __future__ import annotations

import uuid

import pytest
from tests.interop.clusters import Clusters
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import Admin, Producer
from tests.interop.python_client import registered, until

from twinlog.client import (
    BrokerRefused,
    Consumed,
    ConsumerOptions,
    Message,
    Outgoing,
    PollConsumer,
    ProducerOptions,
    PushConsumer,
    StartFrom,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=["java-5.5.0", "twinlog"])
def names(request: pytest.FixtureRequest, clusters: Clusters) -> str:
    return registered(clusters.get(request.param, use="python-client")).names.address


async def test_mqadmin_shows_the_trace_of_a_send_and_of_its_consumption(names: str):
    topic = f"T_{uuid.uuid4().hex[:8]}"

    async def listen(message: Message) -> Consumed:
        return Consumed.SUCCESS if message.body == b"good" else Consumed.RETRY

    options = ConsumerOptions(start_from=StartFrom.FIRST, enable_trace=True)
    consumer = PushConsumer(names, f"G_{topic}", listen, consumer_options=options)
    consumer.subscribe(topic)
    async with Admin(names) as admin:
        await admin.create_topic(topic, queues=1)
        async with Producer(names, f"P_{topic}", producer_options=ProducerOptions(enable_trace=True)) as producer:
            good = await producer.send(Outgoing(topic, b"good", tags="hot", keys=["key-1", "key-2"]))
            bad = await producer.send(Outgoing(topic, b"bad"))
        async with consumer:
            queue = good.queue
            await until(lambda: queue in consumer.workers and consumer.workers[queue].process.commit_offset == 2)
    mqadmin = JavaRocketmq("5.5.0").mqadmin
    for sent, consumed in ((good, "success"), (bad, "failed")):
        printed = mqadmin("queryMsgTraceById", "-i", sent.message_id, "-n", names)
        sends = [line for line in printed.splitlines() if line.startswith("Pub")]
        reads = [line for line in printed.splitlines() if line.startswith("Sub")]
        assert len(sends) == 1 and f"P_{topic}" in sends[0] and "success" in sends[0], printed
        assert any(f"G_{topic}" in line and consumed in line for line in reads), printed


async def test_a_delayed_message_is_recalled_and_never_comes(names: str):
    topic = f"R_{uuid.uuid4().hex[:8]}"
    async with Admin(names) as admin, Producer(names, f"P_{topic}") as producer:
        await admin.create_topic(topic, queues=1)
        kept = await producer.send(Outgoing(topic, b"kept", delay_ms=6_000))
        sent = await producer.send(Outgoing(topic, b"taken back", delay_ms=5_000))
        assert sent.recall_handle and kept.recall_handle
        assert await producer.recall(topic, sent.recall_handle) == sent.message_id
        reader = PollConsumer(names, f"G_{topic}", consumer_options=ConsumerOptions(start_from=StartFrom.FIRST))
        reader.subscribe(topic)
        found: list[bytes] = []
        async with reader:
            while b"kept" not in found:
                found += [message.body for message in await reader.poll(30_000)]
        assert found == [b"kept"]
        with pytest.raises(BrokerRefused, match=r"timestamp invalid.*not delivered yet"):
            await producer.recall(topic, sent.recall_handle)


async def test_members_that_poll_share_a_topic_and_their_progress(names: str):
    topic = f"P_{uuid.uuid4().hex[:8]}"
    options = ConsumerOptions(start_from=StartFrom.FIRST)
    members = [PollConsumer(names, f"G_{topic}", consumer_options=options, auto_commit=False) for _ in range(2)]
    async with Admin(names) as admin, Producer(names, f"P_{topic}") as producer:
        await admin.create_topic(topic, queues=4)
        for member in members:
            member.subscribe(topic)
        async with members[0], members[1]:
            await until(lambda: [len(member.assignment()) for member in members] == [2, 2])
            for queue in await producer.queues(topic):
                await producer.send(Outgoing(topic, f"{queue.queue_id}"), queue=queue)
            got: list[list[int]] = []
            for member in members:
                own: list[int] = []
                while len(own) < 2:
                    own += [message.queue_id for message in await member.poll(30_000)]
                await member.commit()
                got.append(sorted(own))
            assert got == [sorted(queue.queue_id for queue in member.assignment()) for member in members]
            for queue in members[0].assignment():
                assert await members[0].committed(queue) == 1
