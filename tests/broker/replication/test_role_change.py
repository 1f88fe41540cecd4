"""Brokers change roles while they run: nothing acknowledged is lost, and offsets come along."""

import asyncio

import pytest
from tests.broker.running import connected, send
from tests.replication.cluster import ask, end_of, read_all, running_cluster, send_all, status, twins, until

from twinlog.broker.deferred.op_records import OpBuffer
from twinlog.broker.topics.ensure import ensure_group
from twinlog.client import Outcome, Outgoing, Producer
from twinlog.store.errors import FlushFailed
from twinlog.wire.codes import RequestCode
from twinlog.wire.message import decode_messages
from twinlog.wire.twinlog_codes import TwinlogCode


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def bodies(mark: str, count: int = 50) -> list[bytes]:
    return [f"{mark} {number}".encode() for number in range(count)]


async def change_role(broker, role, broker_id="", **more):
    return await ask(broker, TwinlogCode.CHANGE_ROLE, {"brokerRole": role, "brokerId": str(broker_id), **more})


async def commit(broker, offset):
    fields = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    answer = await ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == 0, answer.remark


def committed(broker):
    return broker.context.offsets.get("CG", "T", 0)


async def test_two_brokers_swap_roles_and_back_with_messages_and_offsets_in_between(cluster):
    one = await cluster.start("one")
    two = await cluster.start("two", "SLAVE", 1)
    assert await send_all(one, bodies("first")) == bodies("first")
    ensure_group(one.context, "CG")
    await commit(one, 20)
    await twins(one, two)
    await until(lambda: committed(two) == 20, "the offset has come to the replica")

    answer = await change_role(one, "SLAVE", 2)
    assert answer.code == 0, answer.remark
    assert await send_all(one, bodies("refused", 3)) == [], "a replica takes no sends"
    assert (await change_role(two, "SYNC_MASTER")).code == 0
    assert (await status(two))["role"] == "SYNC_MASTER"
    await twins(two, one)
    assert await send_all(two, bodies("second")) == bodies("second"), "acknowledged by both"
    await commit(two, 70)
    await twins(two, one)
    await until(lambda: committed(one) == 70, "the offset has come to the other side")

    assert (await change_role(two, "SLAVE", 1)).code == 0
    assert (await change_role(one, "ASYNC_MASTER")).code == 0
    assert await send_all(one, bodies("third")) == bodies("third")
    await twins(one, two)
    expected = [*bodies("first"), *bodies("second"), *bodies("third")]
    for broker in (one, two):
        assert [message.body for message in await read_all(broker)] == expected
        assert committed(broker) == 70


async def test_a_replica_takes_over_from_a_dead_master_and_the_old_master_returns_as_its_replica(cluster):
    one = await cluster.start("one", "SYNC_MASTER")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    sent = await send_all(one, bodies("before"))
    assert sent == bodies("before")
    await cluster.stop("one")
    assert (await change_role(two, "ASYNC_MASTER")).code == 0
    sent += await send_all(two, bodies("after"))
    one = await cluster.start("one", "SLAVE", 1)
    await twins(two, one)
    assert [message.body for message in await read_all(one)] == sent
    assert end_of(one) == end_of(two)


async def test_a_replica_that_is_behind_gets_the_rest_before_its_master_steps_down(cluster):
    slowly = {"haFlowControlEnable": True, "maxHaTransferByteInSecond": 200_000}
    one = await cluster.start("one", **slowly)
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    sent = [b"%d " % number * 1000 for number in range(100)]
    assert await send_all(one, sent) == sent
    assert end_of(two) < end_of(one), "it is behind"
    assert (await change_role(one, "SLAVE", 2)).code == 0
    assert (await change_role(two, "ASYNC_MASTER")).code == 0
    await twins(two, one)
    assert [message.body for message in await read_all(two)] == sent


@pytest.mark.parametrize("then", ["SLAVE", "ASYNC_MASTER"])
async def test_a_change_that_failed_half_way_is_safe_and_may_be_asked_for_again(cluster, monkeypatch, then):
    one = await cluster.start("one")
    await send_all(one, bodies("before"))
    flush = one.context.store.flush

    def fail():
        raise FlushFailed(cluster.home, OSError("bad disk"))

    monkeypatch.setattr(one.context.store, "flush", fail)
    answer = await change_role(one, "SLAVE", 2, force="true")
    assert answer.code != 0 and "bad disk" in answer.remark
    assert await send_all(one, [b"refused"]) == []
    monkeypatch.setattr(one.context.store, "flush", flush)
    assert (await change_role(one, then)).code == 0
    if then == "SLAVE":
        two = await cluster.start("two", haCopyWholeHistory=True)
        assert one.context.store.role == "SLAVE"
        await until(lambda: one.replication.replica.status.state == "refused", "it looks for its master")
        assert end_of(two) < end_of(one)
    else:
        assert await send_all(one, [b"accepted"]) == [b"accepted"]


async def test_no_second_master_beside_one_that_answers(cluster):
    one = await cluster.start("one")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    answer = await change_role(two, "ASYNC_MASTER")
    assert answer.code != 0 and f"{one.address} is the master of broker-a and answers" in answer.remark
    assert (await status(two))["role"] == "SLAVE"
    await send_all(one, bodies("more"))
    await twins(one, two)


async def test_sends_during_the_change_are_acknowledged_and_kept_or_refused(cluster):
    one = await cluster.start("one", "SYNC_MASTER")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    acknowledged: list[bytes] = []

    async def keep_sending():
        number = 0
        while True:
            got = await send_all(one, [f"m{number}-{n}".encode() for n in range(10)])
            acknowledged.extend(got)
            if not got:
                return
            number += 1

    sending = asyncio.create_task(keep_sending())
    await until(lambda: len(acknowledged) > 100, "sends flow")
    assert (await change_role(one, "SLAVE", 2)).code == 0
    await sending
    assert (await change_role(two, "ASYNC_MASTER")).code == 0
    await twins(two, one)
    found = {message.body for message in await read_all(two)}
    assert set(acknowledged) <= found


async def test_a_settings_update_changes_the_role_in_the_same_steps_and_the_file_follows(cluster, tmp_path):
    one = await cluster.start("one")
    two = await cluster.start("two", "SLAVE", 1)
    await send_all(one, bodies("first"))
    await twins(one, two)
    answer = await ask(one, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerRole=SLAVE\nmaxMessageSize=1048576\n")
    assert answer.code == 0, answer.remark
    assert (await status(one))["brokerId"] == 2, "id 1 is taken, so the next one is"
    assert one.context.conf.store.message_bytes_max == 1 << 20
    assert await send_all(one, [b"no"]) == []
    answer = await ask(two, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerRole=ASYNC_MASTER\n")
    assert answer.code == 0 and (await status(two))["brokerId"] == 0
    assert await send_all(two, [b"yes"]) == [b"yes"]
    await twins(two, one)


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"brokerRole=KING\n", "'KING' is not a role; use ASYNC_MASTER, SYNC_MASTER or SLAVE"),
        (b"brokerRole=SLAVE\nbrokerId=0\n", "a replica needs a brokerId above 0, not 0"),
        (b"brokerRole=SLAVE\nbrokerId=one\n", "brokerId=one is not a number"),
        (b"brokerRole=SLAVE\nmaxMessageSize=many\n", "maxMessageSize=many"),
    ],
)
async def test_a_role_that_cannot_be_taken_changes_nothing(cluster, body, remark):
    one = await cluster.start("one")
    answer = await ask(one, RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == 1 and remark in answer.remark
    assert (await status(one))["role"] == "ASYNC_MASTER"
    assert await send_all(one, [b"still"]) == [b"still"]


@pytest.mark.parametrize(
    ("role", "broker_id", "remark"),
    [
        ("SLAVE", "-1", "brokerId=-1 is not an id"),
        ("SLAVE", "two", "brokerId=two is not an id"),
        ("SLAVE", "\u00b2", "is not an id"),
        ("SLAVE", "0", "a replica needs a brokerId above 0, not 0"),
        ("SYNC_MASTER", "3", "a master has brokerId=0, not 3"),
    ],
)
async def test_an_id_that_does_not_go_with_the_role_changes_nothing(cluster, role, broker_id, remark):
    one = await cluster.start("one")
    answer = await change_role(one, role, broker_id)
    assert answer.code != 0 and remark in answer.remark
    assert (await status(one))["role"] == "ASYNC_MASTER"


async def test_a_delayed_message_is_delivered_by_the_replica_that_took_over(cluster):
    levels = {"messageDelayLevel": "2s 5s"}
    one = await cluster.start("one", **levels)
    two = await cluster.start("two", "SLAVE", 1, slaveMetadataSyncInterval=60_000, **levels)
    await twins(one, two)
    await until(lambda: two.replication.sync.status.rounds, "the only round of metadata")
    async with connected(one) as connection:
        await send(connection, b"at once")
        answer = await send(connection, b"later", i="DELAY\x011\x02")
        assert answer.code == 0, answer.remark
    await twins(one, two)
    await cluster.stop("one")
    assert (await change_role(two, "ASYNC_MASTER")).code == 0
    assert "T" in two.context.topics, "the topic came along"

    async def delivered():
        return [message.body for message in await read_all(two)] == [b"at once", b"later"]

    async with asyncio.timeout(15):
        while not await delivered():
            await asyncio.sleep(0.1)


async def test_a_transaction_that_a_dead_master_committed_is_there_once_after_the_replica_took_over(cluster):
    one = await cluster.start("one")  # with a short transactionTimeOut it may ask before the commit has arrived
    quickly = {"transactionTimeOut": 100, "transactionCheckInterval": 200, "flushCommitLogThoroughInterval": 200}
    two = await cluster.start("two", "SLAVE", 1, **quickly)  # a round waits until the log is flushed
    await twins(one, two)
    checks: list[bytes] = []

    def check(message):
        checks.append(bytes(message.body))
        return Outcome.COMMIT

    async with Producer(cluster.names, "PG", check_transaction=check) as producer:
        await producer.send_in_transaction(Outgoing("T", "once"), lambda _: Outcome.COMMIT)
        one.context.step_down_listeners[0].__self__.queues._ops = OpBuffer()  # it dies before the op record is written
        await twins(one, two)
        await cluster.stop("one")
        assert (await change_role(two, "ASYNC_MASTER")).code == 0
        await producer.send_in_transaction(Outgoing("T", "asked"), lambda _: Outcome.UNKNOWN)

        def found():
            store = two.context.store
            queues = [store.read("T", queue, 0, count_max=32).buffers for queue in range(8)]
            return sorted(message.body for parts in queues for message in decode_messages(b"".join(parts)))

        await until(lambda: b"asked" in found(), "checks run")
        assert (found(), set(checks)) == ([b"asked", b"once"], {b"asked"})
