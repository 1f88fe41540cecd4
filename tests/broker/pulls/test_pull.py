"""Pulls as consumers see them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.broker.running import PULL_FIELDS, broker_conf, connected, pull, pull_messages, running_broker, send

from twinlog.broker.pulls.pull import COUNT_MAX, HOLD_MS_MAX, read_fields
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import Request
from twinlog.net.errors import ConnectionLost
from twinlog.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from twinlog.wire.command import Command
from twinlog.wire.java_text import tags_code
from twinlog.wire.message import decode_messages


@pytest.fixture
async def broker(tmp_path):
    async with running_broker(broker_conf(tmp_path, enablePropertyFilter=True)) as running:
        yield running


async def heartbeat(connection, *subscriptions: SubscriptionData, group: str = "CG", model: str = "CLUSTERING"):
    consumer = ConsumerData(group_name=group, message_model=model, subscription_data_set=list(subscriptions))
    answer = await connection.request(34, {}, encode_body(HeartbeatData(client_id="c@1", consumer_data_set=[consumer])))
    assert answer.code == 0


def tagged(tag: str) -> SubscriptionData:
    return SubscriptionData(topic="T", sub_string=tag, tags_set=[tag], code_set=[tags_code(tag)], sub_version=1)


async def test_an_answer_carries_all_offsets(connection):
    for _ in range(3):
        await send(connection)
    answer = await pull(connection, queueOffset="1", maxMsgNums="1")
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "2",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    (message,) = decode_messages(answer.body)
    assert message.queue_offset == 1


@pytest.mark.parametrize(
    ("queue_offset", "code", "remark", "next_offset"),
    [
        ("2", 19, "OFFSET_OVERFLOW_ONE", "2"),
        ("9", 21, "OFFSET_OVERFLOW_BADLY", "2"),
        ("-1", 21, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_an_offset_outside_the_queue_is_corrected(connection, queue_offset, code, remark, next_offset):
    for _ in range(2):
        await send(connection)
    answer = await pull(connection, queueOffset=queue_offset)
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (code, remark, next_offset)
    assert not answer.body


async def test_an_empty_queue_is_not_found_at_zero_and_moved_elsewhere(connection):
    await send(connection, e="1")
    assert (await pull(connection)).code == 19
    answer = await pull(connection, queueOffset="3")
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (21, "NO_MESSAGE_IN_QUEUE", "0")


async def test_a_count_below_one_still_returns_a_message(connection):
    await send(connection)
    await send(connection)
    assert len(await pull_messages(connection, maxMsgNums="0")) == 1


async def test_a_reader_of_much_gets_more_than_javas_limit_if_it_asks_for_it(connection):
    for _ in range(40):
        await send(connection)
    assert len(await pull_messages(connection, maxMsgNums="100")) == 32
    assert len(await pull_messages(connection, maxMsgNums="100", twinlogLargeAnswer="true")) == 40
    assert len(await pull_messages(connection, maxMsgNums="35", twinlogLargeAnswer="true")) == 35


async def test_a_large_answer_has_a_megabyte(connection):
    for _ in range(6):
        await send(connection, body=bytes(400_000))
    assert len(await pull_messages(connection, maxMsgNums="100")) == 1
    assert len(await pull_messages(connection, maxMsgNums="100", twinlogLargeAnswer="true")) == 2


async def test_a_huge_count_does_not_make_a_filter_examine_the_whole_queue(broker, connection, monkeypatch):
    await send(connection)
    store, counts = broker.context.store, []
    read = store.read
    monkeypatch.setattr(store, "read", lambda *at, **more: counts.append(more["count_max"]) or read(*at, **more))
    await pull(connection, maxMsgNums="2147483647", subscription="z")
    assert counts == [COUNT_MAX]


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"consumerGroup": "bad/group"}, 26, "subscription group [bad/group] does not exist, "),
        ({"topic": "Missing"}, 17, "topic[Missing] not exist, apply first please! "),
        ({"topic": "rmq_sys_SYNC_BROKER_MEMBER_broker-a"}, 16, "pulling message is forbidden"),
        ({"queueId": "7"}, 29, "queueId[7] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:"),
        ({"queueId": "-1"}, 29, "queueId[-1] is illegal"),
        ({"sysFlag": "0"}, 24, "the consumer's group info not exist"),
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"queueId": "x"}, 1, "the pull header does not parse"),
        ({"queueOffset": "1e3"}, 1, "the pull header does not parse: queueOffset is not a number"),
        ({"maxMsgNums": "4.0"}, 1, "the pull header does not parse: maxMsgNums is not a number"),
        ({"suspendTimeoutMillis": "+-1"}, 1, "the pull header does not parse"),
        ({"subVersion": "9223372036854775808"}, 1, "the pull header does not parse"),
        ({"queueId": "4294967296"}, 1, "the pull header does not parse"),
    ],
)
async def test_a_pull_that_cannot_be_served_is_answered_with_the_reason(connection, fields, code, remark):
    await send(connection)
    answer = await pull(connection, **fields)
    assert answer.code == code
    assert remark in answer.remark


@pytest.mark.parametrize(
    ("text", "number"),
    [("+1", 1), ("-1", -1), ("007", 7), ("-007", -7), ("-0", 0), ("0" * 5000, 0), ("9" * 18, 10**18 - 1)],
)
def test_a_number_is_read_as_java_reads_it(text, number):
    request = Request(11, 1, fields={**PULL_FIELDS, "queueOffset": text})
    assert read_fields(request).queue_offset == number


async def test_tags_in_the_request_choose_messages_and_move_on(connection):
    for tag in ("a", "b", "a", "c"):
        await send(connection, tag.encode(), i=f"TAGS\x01{tag}\x02")
    answer = await pull(connection, subscription="a || c")
    assert [m.body for m in decode_messages(answer.body)] == [b"a", b"a", b"c"]
    answer = await pull(connection, subscription="z")
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "4")


async def test_an_sql_filter_in_the_request_selects_by_properties(connection):
    for number in range(4):
        await send(connection, b"%d" % number, i=f"size\x01{number}\x02")
    messages = await pull_messages(connection, subscription="size > 1", expressionType="SQL92")
    assert [m.body for m in messages] == [b"2", b"3"]


async def test_sql_is_refused_where_it_is_switched_off(tmp_path):
    async with running_broker(broker_conf(tmp_path / "s")) as broker, connected(broker) as client:
        await send(client)
        answer = await pull(client, subscription="a = 1", expressionType="SQL92")
        assert answer.code == 1
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"


async def test_a_push_consumer_pulls_by_its_heartbeat(connection):
    await send(connection, b"a", i="TAGS\x01a\x02")
    await send(connection, b"b", i="TAGS\x01b\x02")
    await heartbeat(connection, tagged("b"))
    answer = await pull(connection, sysFlag="2", subVersion="1")
    assert [m.body for m in decode_messages(answer.body)] == [b"b"]
    assert (await pull(connection, sysFlag="2", subVersion="2")).code == 25
    await send(connection, b="Other")
    assert (await pull(connection, sysFlag="2", topic="Other")).code == 24


async def test_a_group_may_be_forbidden_to_broadcast_or_to_read(broker, connection):
    await send(connection)
    await heartbeat(connection, tagged("b"), model="BROADCASTING")
    ctx = broker.context
    group = ctx.groups.get("CG")
    ctx.groups.put("CG", msgspec.structs.replace(group, consume_broadcast_enable=False), 1)
    answer = await pull(connection, sysFlag="2")
    assert (answer.code, answer.fields) == (16, {"forbiddenType": "4"})
    ctx.groups.put("CG", msgspec.structs.replace(group, consume_enable=False), 1)
    answer = await pull(connection, sysFlag="2")
    assert (answer.code, answer.fields) == (16, {"forbiddenType": "2"})


async def held_pull(connection, **fields: str) -> asyncio.Task:
    """A pull that the broker has put on hold: it has answered what was asked after it on the same connection."""
    pulling = asyncio.create_task(pull(connection, sysFlag="6", queueOffset="1", **fields))
    await asyncio.sleep(0)
    await connection.request(30, {"topic": "T", "queueId": "0"})
    return pulling


async def test_a_held_pull_is_answered_by_the_next_message(broker, connection):
    await send(connection)
    pulling = await held_pull(connection)
    async with connected(broker) as producer:
        await send(producer, b"second")
        answer = await pulling
    assert answer.code == 0
    assert decode_messages(answer.body)[0].body == b"second"


async def test_a_held_pull_ignores_messages_its_filter_refuses(broker, connection):
    await send(connection, i="TAGS\x01a\x02")
    pulling = await held_pull(connection, subscription="b")
    async with connected(broker) as producer:
        await send(producer, b"no", i="TAGS\x01a\x02")
        assert len(broker.context.holds) == 1
        await send(producer, b"yes", i="TAGS\x01b\x02")
        answer = await pulling
    assert [m.body for m in decode_messages(answer.body)] == [b"yes"]
    assert answer.fields["nextBeginOffset"] == "3"


async def test_a_held_pull_ends_when_its_time_is_up(connection):
    await send(connection)
    answer = await pull(connection, sysFlag="6", queueOffset="1", suspendTimeoutMillis="1")
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")


async def test_a_held_pull_keeps_only_what_its_answer_needs(broker, connection):
    await send(connection)
    held = Command(11, 1, remark="r" * 10_000, fields={**PULL_FIELDS, "queueOffset": "1", "sysFlag": "6"})
    held.body = bytes(1 << 20)
    connection.send(held)
    while not len(broker.context.holds):
        await asyncio.sleep(0)
    (one,) = broker.context.holds
    assert (one.request.body, one.request.remark) == (None, None)


async def test_a_pull_with_very_large_fields_does_not_wait(broker, connection):
    await send(connection)
    answer = await pull(connection, queueOffset="1", sysFlag="6", junk="x" * 70_000)
    assert (answer.code, len(broker.context.holds)) == (19, 0)
    assert "65536" in answer.remark


async def test_a_pull_waits_an_hour_at_most(broker, connection):
    await send(connection)
    task = asyncio.create_task(pull(connection, queueOffset="1", sysFlag="6", suspendTimeoutMillis=str(2**62)))
    while not len(broker.context.holds):
        await asyncio.sleep(0)
    (one,) = broker.context.holds
    assert one.deadline_ms - one.checked_ms == HOLD_MS_MAX
    await send(connection)
    assert (await task).code == 0


async def test_a_held_pull_leaves_with_its_connection(broker, connection):
    await send(connection)
    closed = asyncio.Event()
    async with connected(broker) as consumer:
        pulling = await held_pull(consumer)
        (hold,) = broker.context.holds
        hold.request.connection.on_close.append(lambda _: closed.set())
    await closed.wait()
    assert len(broker.context.holds) == 0
    with pytest.raises(ConnectionLost):
        await pulling


async def test_a_held_pull_of_a_deleted_topic_is_answered_with_an_error(broker, connection):
    await send(connection)
    pulling = await held_pull(connection)
    async with connected(broker) as admin:
        assert (await admin.request(215, {"topic": "T"})).code == 0
    assert (await pulling).code == 17


async def test_a_pull_commits_the_offset_it_brings(broker, connection):
    await send(connection)
    await pull(connection, sysFlag="5", commitOffset="1")
    assert broker.context.offsets.get("CG", "T", 0) == 1


async def test_a_reset_moves_the_next_pull_once(broker, connection):
    for _ in range(3):
        await send(connection)
    broker.context.offsets.reset("CG", "T", 0, 1, 0)
    answer = await pull(connection, queueOffset="3")
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (21, "OFFSET_RESET", "1")
    assert (await pull(connection, queueOffset="1")).code == 0


async def test_pulls_are_unknown_on_the_second_port_and_sends_are_not(broker):
    async with connected(broker, port_below=2) as client:
        answer = await pull(client)
        assert (answer.code, answer.remark) == (3, " request type 11 not supported")
        assert (await pull(client, code=361)).code == 3
        assert (await send(client)).code == 0


async def test_lite_pull_is_the_same_under_another_code(connection):
    await send(connection)
    assert (await pull(connection, code=361)).code == 0


async def test_a_replica_serves_pulls_unless_it_is_configured_not_to(tmp_path):
    for allowed, code in ((True, 17), (False, 2)):
        conf = broker_conf(tmp_path / str(code), brokerRole="SLAVE", brokerId=1, slaveReadEnable=allowed)
        async with running_broker(conf) as broker, connected(broker) as client:
            assert (await pull(client)).code == code


async def test_a_replica_does_not_send_consumers_back(tmp_path):
    conf = broker_conf(tmp_path / "s", brokerRole="SLAVE", brokerId=1)
    async with running_broker(conf) as broker, connected(broker) as client:
        ensure_topic(broker.context, "T", 4)
        answer = await pull(client, queueOffset="7")
        assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "7")
