"""Sends as clients see them: what is answered, and what is stored."""

from __future__ import annotations

import pytest
from tests.broker.running import SEND_FIELDS, broker_conf, connected, pull_messages, running_broker, send

from twinlog.broker.topics.ensure import ensure_topic
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.values.message_id import parse_offset_message_id


async def test_a_sent_message_can_be_pulled(broker, connection):
    properties = {"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "U1", "colour": "blau"}
    answer = await send(connection, b"hello", e="3", h="7", i=encode_properties(properties).decode())
    assert answer.code == 0
    assert answer.fields["queueId"] == "3"
    assert answer.fields["queueOffset"] == "0"
    assert answer.fields["transactionId"] == "U1"
    assert answer.fields["MSG_REGION"] == "DefaultRegion"
    assert answer.fields["TRACE_ON"] == "true"
    (message,) = await pull_messages(connection, queueId="3")
    assert message.body == b"hello"
    assert message.flag == 7
    assert message.born_timestamp == 1700000000000
    assert message.properties.pop("__CRC32#").isdigit()
    assert message.properties == properties | {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert message.offset_message_id == answer.fields["msgId"]
    host, port, offset = parse_offset_message_id(answer.fields["msgId"])
    assert (host, port, offset) == ("127.0.0.1", broker.conf.broker.listen_port, message.physical_offset)


async def test_a_message_without_a_unique_key_gets_one(connection):
    answer = await send(connection)
    (message,) = await pull_messages(connection)
    assert message.properties["UNIQ_KEY"] == answer.fields["transactionId"]
    assert len(answer.fields["transactionId"]) == 32


async def test_a_topic_is_created_from_its_template(broker, connection):
    await send(connection, b="Fresh", d="50", c="DefaultCluster")
    config = broker.context.topics.get("Fresh")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (16, 16, 6)
    await send(connection, b="Small", d="4")
    assert broker.context.topics.get("Small").write_queue_nums == 4


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"b": "a/b"}, 29, "illegal characters"),
        ({"b": ""}, 29, "The specified topic is blank."),
        ({"b": "x" * 128}, 29, "longer than topic max length"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "None", "c": "BenchmarkTest"}, 17, "topic[None] not exist, apply first please!"),
        ({"e": "8"}, 29, "request queueId[8] is illegal, TopicConfig [topicName=T, readQueueNums=4"),
        ({"e": "zero"}, 1, "e='zero' is not a number"),
        ({"e": str(2**40)}, 1, "e='1099511627776' is not a number of 32 bits"),
        ({"g": str(2**80)}, 1, "g='1208925819614629174706176' is not a number of 64 bits"),
        ({"i": "x\x01" + "y" * 40000 + "\x02"}, 13, "the message is illegal"),
        ({"b": "%RETRY%bad/group"}, 29, "illegal characters"),
        ({"m": "true"}, 13, "batch element at byte 0 is torn"),
    ],
)
async def test_a_send_that_cannot_be_accepted_is_refused_with_javas_code(broker, connection, fields, code, remark):
    log_end = broker.context.store.log_end
    answer = await send(connection, **fields)
    assert answer.code == code
    assert remark in answer.remark
    assert answer.fields["MSG_REGION"] == "DefaultRegion"
    assert broker.context.store.log_end == log_end


async def test_a_missing_body_and_a_missing_header_are_errors_of_their_own(connection):
    answer = await send(connection, None)
    assert answer.code == 1
    assert "NullPointerException" in answer.remark
    answer = await connection.request(310, {}, b"x")
    assert (answer.code, answer.remark) == (1, "the custom field <a> is null")
    answer = await connection.request(10, None, b"x")
    assert (answer.code, answer.remark) == (1, "the custom field <producerGroup> is null")


async def test_the_largest_body_is_accepted_and_one_byte_more_is_not(tmp_path):
    async with running_broker(broker_conf(tmp_path / "s", maxMessageSize=1000)) as broker, connected(broker) as client:
        assert (await send(client, bytes(1000))).code == 0
        refused = await send(client, bytes(1001))
        assert refused.code == 13
        assert refused.remark.startswith("the message is illegal, maybe msg body or properties length not matched.")
        assert "1000B" in refused.remark


async def test_all_messages_of_a_batch_together_may_be_as_large_as_one_body(tmp_path):
    def batch(size: int) -> bytes:
        return encode_batch([BatchElement(bytes(400)), BatchElement(bytes(size - 400 - 2 * 22))])

    async with running_broker(broker_conf(tmp_path / "s", maxMessageSize=1000)) as broker, connected(broker) as client:
        for code in (310, 320):
            assert (await send(client, batch(1000), code, m="true")).code == 0
            refused = await send(client, batch(1001), code, m="true")
            assert refused.code == 1
            # Java 5.5.0 prints its exception, and clients look for these words; 4.9.7 answers 13.
            assert "message body size exceeded" in refused.remark
            assert "1001" in refused.remark and "1000" in refused.remark
        assert broker.context.store.max_offset("T", 0) == 4
        assert (await client.request(25, {}, b"maxMessageSize=1001")).code == 0
        assert (await send(client, batch(1001), 320, m="true")).code == 0


async def test_the_long_header_form_stores_the_same(connection):
    fields = {
        "producerGroup": "PG",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "UNIQ_KEY\x01U\x02",
    }
    answer = await connection.request(10, fields, b"x")
    assert answer.code == 0
    (message,) = await pull_messages(connection)
    assert (message.body, message.properties["UNIQ_KEY"]) == (b"x", "U")


async def test_a_batch_is_stored_as_single_messages_with_their_own_properties(connection):
    elements = [
        BatchElement(b"one", b"UNIQ_KEY\x01A\x02TAGS\x01x\x02", 1),
        BatchElement(b"two", b"UNIQ_KEY\x01B\x02", 2),
    ]
    # It is the member `m` that makes a batch, not the request code.
    answer = await send(connection, encode_batch(elements), code=310, m="true", i="UNIQ_KEY\x01W\x02")
    assert answer.code == 0
    assert answer.fields["transactionId"] == "W"
    messages = await pull_messages(connection)
    assert answer.fields["msgId"] == ",".join(message.offset_message_id for message in messages)
    assert [(m.body, m.flag, m.properties["UNIQ_KEY"], m.queue_offset) for m in messages] == [
        (b"one", 1, "A", 0),
        (b"two", 2, "B", 1),
    ]


async def test_a_batch_code_without_the_batch_member_is_one_message(connection):
    body = encode_batch([BatchElement(b"one")])
    assert (await send(connection, body, code=320)).code == 0
    (message,) = await pull_messages(connection)
    assert message.body == body


async def test_a_batch_may_not_be_delayed_or_retried(connection):
    body = encode_batch([BatchElement(b"one")])
    assert (await send(connection, body, m="true", i="DELAY\x013\x02")).code == 13
    answer = await send(connection, body, m="true", b="%RETRY%CG")
    assert (answer.code, answer.remark) == (13, "batch request does not support retry group %RETRY%CG")
    assert (await send(connection, b"", m="true")).code == 1


async def test_an_inner_batch_stays_one_record_for_a_batch_topic(broker, connection):
    config = ensure_topic(broker.context, "B", 1)
    config.attributes = {"queue.type": "BatchCQ"}
    body = encode_batch([BatchElement(b"one"), BatchElement(b"two"), BatchElement(b"three")])
    answer = await send(connection, body, b="B", m="true", i="UNIQ_KEY\x01W\x02")
    assert answer.code == 0
    assert answer.fields["batchUniqId"] == "W"
    again = await send(connection, body, b="B", m="true", i="UNIQ_KEY\x01V\x02")
    assert again.fields["queueOffset"] == "3"
    messages = await pull_messages(connection, topic="B")
    assert [m.properties["INNER_NUM"] for m in messages] == ["3", "3"]
    assert messages[1].properties["INNER_BASE"] == "3"


async def test_after_too_many_retries_a_message_becomes_a_dead_letter(broker, connection):
    assert (await send(connection, b="%RETRY%CG", j="16")).code == 0
    assert (await send(connection, b="%RETRY%CG", j="17")).code == 0
    assert (await send(connection, b="%RETRY%CG", j="3", l="2")).code == 0
    assert len(await pull_messages(connection, topic="%RETRY%CG")) == 1
    dead = await pull_messages(connection, topic="%DLQ%CG")
    assert [m.properties["DELAY"] for m in dead] == ["-1", "-1"]
    assert broker.context.topics.get("%DLQ%CG").write_queue_nums == 1


async def test_a_oneway_send_is_stored_and_not_answered(broker, connection):
    connection.oneway(310, {**SEND_FIELDS, "b": "T"}, b"quiet")
    (message,) = await _until_stored(connection)
    assert message.body == b"quiet"


async def _until_stored(connection):
    await send(connection, b="Other")  # answered after the oneway one was handled, as both use one connection
    return await pull_messages(connection)


async def test_the_broker_chooses_a_queue_when_the_producer_does_not(broker, connection):
    answers = [await send(connection, e="-1") for _ in range(30)]
    chosen = {answer.fields["queueId"] for answer in answers}
    assert chosen <= {"0", "1", "2", "3"}
    assert len(chosen) > 1


async def test_a_replica_refuses_sends(tmp_path):
    conf = broker_conf(tmp_path / "s", brokerRole="SLAVE", brokerId=1)
    async with running_broker(conf) as broker, connected(broker) as client:
        answer = await send(client)
        assert answer.code == 2
        assert answer.remark.startswith("[REJECTREQUEST]")


async def test_messages_outlive_a_restart(tmp_path):
    conf = broker_conf(tmp_path / "s")
    async with running_broker(conf) as broker, connected(broker) as client:
        for number in range(10):
            await send(client, b"%d" % number)
    async with running_broker(conf) as broker, connected(broker) as client:
        await send(client, b"10")
        messages = await pull_messages(client)
        assert [m.body for m in messages] == [b"%d" % number for number in range(11)]
        assert [m.queue_offset for m in messages] == list(range(11))


async def test_properties_without_a_value_vanish_as_in_java(connection):
    await send(connection, i="a\x01\x02\x01b\x02c\x01d")
    (message,) = await pull_messages(connection)
    assert {"a", ""}.isdisjoint(message.properties)
    assert message.properties["c"] == "d"
    assert decode_properties(encode_properties(message.properties)) == message.properties
