"""Our own clients while two brokers change roles: sends and consumption go on without a new client."""

import asyncio
import contextlib

import pytest
from tests.replication.cluster import ask, running_cluster, twins, until

from twinlog.client import (
    ConsumerOptions,
    Outcome,
    Outgoing,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    StartFrom,
)
from twinlog.wire.twinlog_codes import TwinlogCode

PATIENT = ProducerOptions(send_timeout_ms=15_000)  # the machine of a test may be slow; a retry is what is tested


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def change_role(broker, role, broker_id=""):
    answer = await ask(broker, TwinlogCode.CHANGE_ROLE, {"brokerRole": role, "brokerId": str(broker_id)})
    assert answer.code == 0, answer.remark


class Sender:
    """Sends one message after another in the way that `send` does, and counts what fails."""

    def __init__(self, send):
        self._send = send
        self.stored: list[str] = []
        self.failed: list[Exception] = []

    async def run(self):
        for number in range(1 << 20):
            try:
                await self._send(f"{number}")
                self.stored.append(f"{number}")
            except Exception as error:
                self.failed.append(error)
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def sending(*sends):
    senders = [Sender(send) for send in sends]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(sender.run()) for sender in senders]
        yield senders
        for task in running:
            task.cancel()


async def test_no_send_fails_and_no_message_is_missed_while_two_brokers_swap_roles(cluster):
    one = await cluster.start("one", "SYNC_MASTER")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    got: dict[str, set[str]] = {"shared": set(), "orderly": set()}
    consumers = [
        PushConsumer(
            cluster.names,
            group,
            lambda message, seen=seen: seen.add(bytes(message.body).decode()),
            consumer_options=ConsumerOptions(start_from=StartFrom.FIRST, orderly=group == "orderly", commit_ms=200),
        )
        for group, seen in got.items()
    ]
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(cluster.names, "g", producer_options=PATIENT))
        await producer.send(Outgoing("T", "first"))
        for consumer in consumers:
            consumer.subscribe("T")
            await stack.enter_async_context(consumer)

        async def in_transaction(text):
            await producer.send_in_transaction(Outgoing("T", "t" + text), lambda _: Outcome.COMMIT)

        kinds = (
            lambda text: producer.send(Outgoing("T", "a" + text)),
            lambda text: producer.send(Outgoing("T", "k" + text, sharding_key="one")),
            lambda text: producer.send_batch([Outgoing("T", "b" + text)]),
            in_transaction,
        )
        async with sending(*kinds) as senders:
            await until(lambda: all(len(sender.stored) > 5 for sender in senders), "sends flow")
            await change_role(one, "SLAVE", 2)
            await asyncio.sleep(0.3)  # a planned switch has a while without a master
            await change_role(two, "ASYNC_MASTER")
            counts = [len(sender.stored) for sender in senders]
            await until(lambda: all(len(s.stored) > n + 5 for s, n in zip(senders, counts, strict=True)), "flow again")
        assert [sender.failed for sender in senders] == [[]] * len(kinds)
        stored = {"first"} | {mark + text for mark, s in zip("akbt", senders, strict=True) for text in s.stored}
        for group, seen in got.items():
            await until(lambda seen=seen: stored <= seen, f"group {group} has every message")
        end = max(two.context.store.max_offset("T", queue) for queue in range(4))

        def committed(group):
            return max(two.context.offsets.get(group, "T", queue) or 0 for queue in range(4)) >= end

        for group in got:
            await until(lambda group=group: committed(group), f"group {group} has committed at the new master")


async def test_a_producer_and_consumers_of_a_master_that_died_go_on_with_the_next_one(cluster):
    one = await cluster.start("one", "SYNC_MASTER")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    async with (
        Producer(cluster.names, "g", producer_options=PATIENT) as producer,
        PullConsumer(cluster.names, "reader") as reader,
    ):
        sent = await producer.send(Outgoing("T", "before"))
        await reader.pull(sent.queue, 0)
        await twins(one, two)
        await until(lambda: "reader" in one.context.groups, "the master knows the group")
        rounds = two.replication.sync.status.rounds
        await until(lambda: two.replication.sync.status.rounds > rounds + 2, "and its replica does")
        await cluster.stop("one")
        during = asyncio.create_task(producer.send(Outgoing("T", "during", sharding_key="k")))
        with pytest.raises(Exception, match="T"):
            await producer.send(Outgoing("T", "hopeless"), timeout_ms=300)
        await change_role(two, "ASYNC_MASTER")
        assert (await during).queue_offset >= 0
        after = await producer.send(Outgoing("T", "after"), queue=sent.queue)
        await reader.commit(sent.queue, after.queue_offset)
        (message,) = (await reader.pull(sent.queue, after.queue_offset)).messages
        assert (bytes(message.body), await reader.committed(sent.queue)) == (b"after", after.queue_offset)
