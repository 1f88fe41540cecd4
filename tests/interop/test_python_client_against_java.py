"""Twinlog's own client with real Java brokers, both versions; and, for comparison, with Twinlog's."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster, Clusters
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import ANSWER_MS, Admin, Producer, PullConsumer, PushConsumer
from tests.interop.python_client import FIRST, Got, consumer, registered, until

from twinlog import client
from twinlog.cli.admin.app import run as run_admin
from twinlog.client import (
    SQL92,
    BrokerRefused,
    ConsumerOptions,
    Message,
    MessageQueue,
    Outcome,
    Outgoing,
    ProducerOptions,
    PullStatus,
    RetryLater,
    SendStatus,
    StartFrom,
    reply_to,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]


@pytest.fixture(scope="module", params=["java-5.5.0", "java-4.9.7", "twinlog"])
def place(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return registered(clusters.get(request.param, use="python-client"))


@pytest.fixture
def names(place: Cluster) -> str:
    return place.names.address


@pytest.fixture
def is_5x(place: Cluster) -> bool:
    return place.implementation.name != "java-4.9.7"


@pytest.fixture
def topic() -> str:
    return f"T_{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def producer(names: str, topic: str):
    async with Admin(names) as admin, Producer(names, f"P_{topic}") as running:
        await admin.create_topic(topic, queues=4)
        yield running


async def test_every_way_to_send_is_stored_and_read_back(names, topic, producer):
    sent = await producer.send(Outgoing(topic, "plain", tags="a", keys=["k1", "k2"], properties={"color": "red"}))
    assert sent.status is SendStatus.OK
    large = "tea " * 5000
    await producer.send(Outgoing(topic, large))
    batch = await producer.send_batch([Outgoing(topic, f"batch-{i}", tags="b") for i in range(3)])
    await producer.send_oneway(Outgoing(topic, "oneway"))
    ordered = [await producer.send(Outgoing(topic, f"ordered-{i}", sharding_key="one")) for i in range(3)]
    assert len({result.queue for result in ordered}) == 1
    found: list[Message] = []
    async with PullConsumer(names, f"R_{topic}") as reader:
        queues = await reader.queues(topic)
        await stored(reader, queues, 9)
        for queue in queues:
            end = await reader.max_offset(queue)
            found += [m async for m in reader.messages(queue, 0, end)]
    by_body = {message.body.decode(): message for message in found}
    assert set(by_body) == {
        *("plain", large, "oneway"),
        *(f"batch-{i}" for i in range(3)),
        *(f"ordered-{i}" for i in range(3)),
    }
    plain = by_body["plain"]
    assert (plain.message_id, plain.tags, plain.keys) == (sent.message_id, "a", ["k1", "k2"])
    assert plain.properties["color"] == "red"
    assert [by_body[f"batch-{i}"].message_id for i in range(3)] == batch.message_id.split(",")


async def test_sends_that_were_gathered_are_stored_where_their_results_say(names, topic, producer):
    options = ProducerOptions(auto_batch=True, send_timeout_ms=ANSWER_MS)
    async with Producer(names, f"A_{topic}", producer_options=options) as gathering:
        messages = [
            Outgoing(topic, f"body-{i}", tags="ab"[i % 2], keys=f"k{i}", properties={"number": f"{i}"})
            for i in range(40)
        ]
        sent = await asyncio.gather(*(gathering.send(message) for message in messages))
    assert {result.status for result in sent} == {SendStatus.OK}
    assert len({result.queue for result in sent}) <= 2, "one batch for each tag"
    async with PullConsumer(names, f"R_{topic}") as reader:
        await stored(reader, await reader.queues(topic), 40)
        for i, result in enumerate(sent):
            (found,) = [m async for m in reader.messages(result.queue, result.queue_offset, result.queue_offset + 1)]
            assert (found.body, found.tags, found.keys) == (b"body-%d" % i, "ab"[i % 2], [f"k{i}"])
            assert (found.message_id, found.offset_message_id) == (result.message_id, result.offset_message_id)
            assert found.properties["number"] == str(i)


async def test_a_list_above_the_limit_is_stored_in_order_in_one_queue(names, topic, producer):
    bodies = [bytes([65 + i]) * (1024 * 1024 - 300) for i in range(7)]  # four of them fill a request to its limit
    sent = await producer.send_batch([Outgoing(topic, body) for body in bodies])
    async with PullConsumer(names, f"R_{topic}") as reader:
        await stored(reader, [sent.queue], 7)
        found = [m async for m in reader.messages(sent.queue, sent.queue_offset, sent.queue_offset + 7)]
    assert [m.body[:1] + m.body[-1:] for m in found] == [body[:1] * 2 for body in bodies]
    assert [m.message_id for m in found] == sent.message_id.split(",")


async def stored(reader: client.PullConsumer, queues: Iterable[MessageQueue], wanted: int) -> None:
    """Return once there are so many messages: Java's queues follow its log a moment later."""

    async def enough() -> bool:
        return sum([await reader.max_offset(queue) for queue in queues]) >= wanted

    await until(enough)


async def test_a_first_message_creates_its_topic(names, topic):
    options = ProducerOptions(new_topic_queues=2, send_timeout_ms=ANSWER_MS)
    async with Producer(names, "P_new", producer_options=options) as producer:
        assert len(await producer.queues(topic)) == 2
        await producer.send(Outgoing(topic, "first"))
    async with Admin(names) as admin:
        await until(lambda: known(admin, topic))
        assert (await admin.route_data(topic)).queue_datas[0].write_queue_nums == 2


async def known(admin: client.Admin, topic: str) -> bool:
    return topic in await admin.topics()


async def test_a_refused_message_names_the_brokers_reason(names, topic, producer):
    too_large = ProducerOptions(message_bytes_max=10**7, compress_above_bytes=0)
    async with Producer(names, "P_large", producer_options=too_large) as large:
        with pytest.raises(BrokerRefused, match="MESSAGE_ILLEGAL"):
            await large.send(Outgoing(topic, b"x" * 4_300_000), timeout_ms=ANSWER_MS)


async def test_pulls_seek_search_and_commit(names, topic, producer, is_5x):
    queue = (await producer.queues(topic))[0]
    before = int(time.time() * 1000)
    for i in range(10):
        await producer.send(Outgoing(topic, f"{i}", tags="even" if i % 2 == 0 else "odd"), queue=queue)
    async with PullConsumer(names, f"R_{topic}") as reader:
        await stored(reader, [queue], 10)
        result = await reader.pull(queue, 3, count_max=2)
        assert [m.body for m in result.messages] == [b"3", b"4"]
        assert (result.status, result.next_offset, result.max_offset) == (PullStatus.FOUND, 5, 10)
        odd = await reader.pull(queue, 0, expression="odd")
        assert [m.body for m in odd.messages] == [b"1", b"3", b"5", b"7", b"9"]
        assert (await reader.pull(queue, 10)).status is PullStatus.NO_NEW
        assert (await reader.pull(queue, 99)).status is PullStatus.OFFSET_MOVED
        assert await reader.offset_at(queue, before - 60_000) == 0
        assert await reader.offset_at(queue, before + 3_600_000) == (10 if is_5x else 9)  # 4.9.7: the last message
        assert await reader.earliest_time_ms(queue) >= before - 1_000
        await reader.commit(queue, 7)
        assert await reader.committed(queue) == 7
        reader.assign({queue: 8})
        assert [m.body for m in await reader.poll(ANSWER_MS)] == [b"8", b"9"]
        waiting = asyncio.create_task(reader.poll(2 * ANSWER_MS))
        await asyncio.sleep(0.3)
        await producer.send(Outgoing(topic, "late"), queue=queue)
        assert [m.body for m in await waiting] == [b"late"]


async def test_a_push_consumer_gets_everything_once_and_goes_on_after_a_restart(names, topic, producer):
    got = Got()
    for i in range(20):
        await producer.send(Outgoing(topic, f"{i:02}"))
    async with consumer(names, topic, got):
        await until(lambda: len(got.messages) >= 20)
        await producer.send(Outgoing(topic, "live"))
        await until(lambda: "live" in got.bodies)
    assert got.bodies == [*(f"{i:02}" for i in range(20)), "live"]
    again = Got()
    async with consumer(names, topic, again):
        await producer.send(Outgoing(topic, "next"))
        await until(lambda: again.messages)
    assert again.bodies == ["next"]


async def test_members_of_a_group_share_the_queues(names, topic, producer):
    first_got, second_got = Got(), Got()
    async with consumer(names, topic, first_got) as first, consumer(names, topic, second_got) as second:
        mine = lambda member: {queue for queue in member.workers if queue.topic == topic}  # noqa: E731
        await until(lambda: len(mine(first)) == 2 and len(mine(second)) == 2)
        assert not mine(first) & mine(second)
        for i in range(20):
            await producer.send(Outgoing(topic, f"{i:02}"))
        await until(lambda: len({*first_got.bodies, *second_got.bodies}) >= 20)
    assert set(first_got.bodies + second_got.bodies) == {f"{i:02}" for i in range(20)}
    assert len(set(first_got.bodies)) == len(set(second_got.bodies)) == 10


async def test_a_java_member_and_a_python_member_agree_on_the_queues(place, names, topic, producer, tmp_path):
    java = place.implementation if isinstance(place.implementation, JavaRocketmq) else JavaRocketmq("5.5.0")
    got = Got()
    async with consumer(names, topic, got) as member:
        mine = lambda: {queue.queue_id for queue in member.workers if queue.topic == topic}  # noqa: E731
        with java_member(java, tmp_path, names, f"G_{topic}", topic) as theirs:
            await until(lambda: len(mine()) == 2)  # the other has joined; it takes the rest when we have let go
            shared = mine()
            for queue in await producer.queues(topic):
                for i in range(5):
                    await producer.send(Outgoing(topic, f"{queue.queue_id}-{i}"), queue=queue)
            await until(lambda: len(set(got.bodies)) >= 10 and len(theirs()) >= 10)
            bodies = {queue: {f"{queue}-{i}" for i in range(5)} for queue in range(4)}
            assert set(got.bodies) == set().union(*(bodies[queue] for queue in shared))
            assert theirs() == {f"{queue} {body}" for queue in bodies.keys() - shared for body in bodies[queue]}


@contextlib.contextmanager
def java_member(java: JavaRocketmq, home: Path, *words: str) -> Iterator[Callable[[], set[str]]]:
    """A Java consumer of the group while the block runs; it gives what that one has printed, `queue body` a line."""
    command, printed = java.client_command("GroupMember", *words, home=home), home / "printed.txt"
    with printed.open("w") as out:
        member = subprocess.Popen(command, cwd=home, stdin=subprocess.PIPE, stdout=out)
    try:
        yield lambda: {line for line in printed.read_text().splitlines() if line[:1].isdigit()}
        member.communicate(timeout=60)
    finally:
        member.kill()
        member.communicate()


async def test_failed_messages_come_again_and_end_as_dead_letters(names, topic, producer):
    attempts: list[int] = []

    async def judge(message: Message) -> None:
        attempts.append(message.reconsume_times)
        assert message.topic == topic
        raise RetryLater(1)

    options = ConsumerOptions(start_from=StartFrom.FIRST, retries_max=2)
    await producer.send(Outgoing(topic, "bad"))
    async with consumer(names, topic, Got(judge), options):
        await until(lambda: len(set(attempts)) == 3)
    dead = f"%DLQ%G_{topic}"
    async with Admin(names) as admin:
        await until(lambda: known(admin, dead))
    async with PullConsumer(names, "R_dead", register=False) as reader:
        (queue,) = await reader.queues(dead)  # perm 6 on both lines
        await stored(reader, [queue], 1)
        found = (await reader.pull(queue, 0)).messages
    assert list(dict.fromkeys(attempts)) == [0, 1, 2]
    assert {m.body for m in found} == {b"bad"}


async def test_orderly_consumption_keeps_each_key_in_order(names, topic, producer):
    seen: dict[str, list[int]] = {}
    failed: set[bytes] = set()

    async def listen(message: Message) -> None:
        key, _, number = message.body.decode().partition(":")
        if number == "3" and message.body not in failed:
            failed.add(message.body)
            raise ValueError("once")
        seen.setdefault(key, []).append(int(number))

    for i in range(8):
        for key in ("a", "b", "c"):
            await producer.send(Outgoing(topic, f"{key}:{i}", sharding_key=key))
    options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True, retry_pause_ms=50)
    async with consumer(names, topic, Got(listen), options):
        await until(lambda: sum(len(set(numbers)) for numbers in seen.values()) == 24)
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in seen.items()} == {
        key: list(range(8)) for key in "abc"
    }


async def test_broadcasting_reaches_every_member(names, topic, producer, tmp_path):
    members = [Got(), Got()]
    made = [
        consumer(
            names,
            topic,
            got,
            ConsumerOptions(start_from=StartFrom.FIRST, broadcasting=True, offsets_directory=tmp_path / str(i)),
        )
        for i, got in enumerate(members)
    ]
    for i in range(6):
        await producer.send(Outgoing(topic, f"{i}"))
    async with made[0], made[1]:
        await until(lambda: all(len(set(got.bodies)) == 6 for got in members))
    assert [set(got.bodies) for got in members] == [{f"{i}" for i in range(6)}] * 2


async def test_sql_expressions_choose_messages_and_broken_ones_are_refused(names, topic, producer):
    got = Got()
    for i in range(6):
        await producer.send(Outgoing(topic, f"{i}", properties={"n": str(i)}))
    made = PushConsumer(names, f"G_{topic}", got, consumer_options=FIRST)
    made.subscribe(topic, "n BETWEEN 2 AND 4", SQL92)
    async with made:
        await until(lambda: len(set(got.bodies)) >= 3)
    assert set(got.bodies) == {"2", "3", "4"}
    broken = PushConsumer(names, f"H_{topic}", got)
    broken.subscribe(topic, "n BETWEEN", SQL92)
    with pytest.raises(BrokerRefused):
        await broken.start()


async def test_delayed_messages_come_later(names, topic, producer, is_5x):
    got = Got()
    async with consumer(names, topic, got):
        start = time.monotonic()
        await producer.send(Outgoing(topic, "level", delay_level=2))
        if is_5x:
            await producer.send(Outgoing(topic, "timer", delay_ms=3_000))
        await until(lambda: len(set(got.bodies)) == (2 if is_5x else 1))
        assert time.monotonic() - start >= 1.9


async def test_transactions_commit_roll_back_and_are_checked(names, topic):
    asked: list[str] = []
    got = Got()

    async def check(message: Message) -> Outcome:
        asked.append(message.body.decode())
        return Outcome.COMMIT

    outcomes = {"committed": Outcome.COMMIT, "dropped": Outcome.ROLLBACK, "unknown": Outcome.UNKNOWN}
    async with Admin(names) as admin, Producer(names, f"P_{topic}", check_transaction=check) as producer:
        await admin.create_topic(topic, queues=2)
        for body, outcome in outcomes.items():
            result = await producer.send_in_transaction(Outgoing(topic, body), lambda message, o=outcome: o)
            assert result.outcome is outcome
        async with consumer(names, topic, got):
            await until(lambda: len(set(got.bodies)) >= 2)
    assert "unknown" in asked
    assert set(got.bodies) == {"committed", "unknown"}


async def test_a_request_gets_its_reply(names, topic, producer):
    async def answer(message: Message) -> None:
        await producer.send(reply_to(message, b"pong " + message.body))

    async with consumer(names, topic, Got(answer)):
        reply = await producer.request(Outgoing(topic, "ping"), timeout_ms=2 * ANSWER_MS)
    assert reply.body == b"pong ping"


async def test_an_admin_sees_and_moves_a_running_consumer(names, topic, producer):
    got = Got()
    for i in range(4):
        await producer.send(Outgoing(topic, f"{i}"))
    async with Admin(names) as admin, consumer(names, topic, got) as running:
        await until(lambda: len(set(got.bodies)) == 4)
        await running.commit()
        group = running.group
        connection = await admin.consumer_connection(group)
        assert [c.client_id for c in connection.connection_set] == [running.session.client_id]
        assert connection.connection_set[0].language == "PYTHON"

        async def committed() -> bool:
            offsets, _ = await admin.consume_stats(group)
            return sum(row.consumer_offset for queue, row in offsets.items() if queue.topic == topic) == 4

        await until(committed)
        info = await admin.running_info(group, running.session.client_id)
        assert sum(row["commitOffset"] for key, row in info["mqTable"].items() if dict(key)["topic"] == topic) == 4
        before = len(got.messages)
        moved = await admin.reset_offset(topic, group, 0)
        assert set(moved.values()) == {0}
        await until(lambda: {message.body for message in got.messages[before:]} == {b"%d" % i for i in range(4)})


async def test_messages_are_found_by_id_key_and_place(names, topic, producer):
    sent = await producer.send(Outgoing(topic, "find me", keys="needle"))
    async with Admin(names) as admin:
        await until(lambda: admin.messages_by_key(topic, "needle"))  # the index follows the log
        assert [m.body for m in await admin.messages_by_key(topic, "needle")] == [b"find me"]
        assert (await admin.message(topic, sent.message_id)).body == b"find me"
        assert (await admin.message_by_offset_id(sent.offset_message_id)).message_id == sent.message_id
        at = await admin.message_at(sent.queue, sent.queue_offset)
        assert at is not None and at.message_id == sent.message_id


# What a 4.9.7 broker does not know is left out there.
ADMIN_COMMANDS = [
    "clusterList -n NS",
    "clusterList -n NS -m",
    "brokerStatus -n NS -b BR",
    "getBrokerConfig -n NS -c DefaultCluster",
    "updateTopic -n NS -c DefaultCluster -t CliTopic -r 3 -w 3",
    "topicList -n NS -c",
    "topicRoute -n NS -t CliTopic",
    "topicStatus -n NS -t CliTopic",
    "topicClusterList -n NS -t CliTopic",
    "updateTopicPerm -n NS -b BR -t CliTopic -p 6",
    "sendMessage -n NS -t CliTopic -p hello -k key -b broker-a -i 0",
    "queryMsgByOffset -n NS -t CliTopic -b broker-a -i 0 -o 0",
    "printMsg -n NS -t CliTopic",
    "consumeMessage -n NS -t CliTopic",
    "queryCq -n NS -t CliTopic -q 0 -i 0 -b BR",
    "updateSubGroup -n NS -c DefaultCluster -g CliGroup",
    "getConsumerConfig -n NS -g CliGroup",
    "consumerProgress -n NS",
    "brokerConsumeStats -n NS -b BR",
    "statsAll -n NS -t CliTopic",
    "allocateMQ -n NS -t CliTopic -i a,b",
    "wipeWritePerm -n NS -b broker-a",
    "addWritePerm -n NS -b broker-a",
    "updateKvConfig -n NS -s space -k key -v value",
    "getKvConfig -n NS -s space",
    "deleteKvConfig -n NS -s space -k key",
    "getNamesrvConfig -n NS",
    "cleanExpiredCQ -n NS -b BR",
    "cleanUnusedTopic -n NS -c DefaultCluster",
    "exportMetadata -n NS -c DefaultCluster -f FOLDER",
    "exportConfigs -n NS -c DefaultCluster -f FOLDER",
    "exportMetrics -n NS -c DefaultCluster -f FOLDER",
    "deleteSubGroup -n NS -c DefaultCluster -g CliGroup",
    "deleteTopic -n NS -c DefaultCluster -t CliTopic",
]


def test_the_admin_commands_work(place, capsys, tmp_path):
    failed = []
    for line in ADMIN_COMMANDS:
        words = line.replace("NS", place.names.address).replace("BR", place.broker.address)
        words = words.replace("FOLDER", str(tmp_path)).split()
        # Java: a queue follows its log a moment later, and the first question after the send may be too early.
        if run_admin(words) and (not words[0].startswith("query") or time.sleep(5) or run_admin(words)):
            failed.append((line, capsys.readouterr().err))
    assert not failed
