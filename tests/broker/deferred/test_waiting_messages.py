"""Delays, timers, transactions and retries through the sockets of a running broker, in real time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.broker.running import broker_conf, connected, pull_messages, running_broker, send

from twinlog.net.connection import ConnectionOptions, Request
from twinlog.net.pool import connect
from twinlog.wire.message import Message, decode_message


def properties(**pairs: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


async def first_message(connection, **fields: str) -> Message:
    """Wait for a message of the queue by long polling."""
    while True:
        found = await connection.request(11, {**PULL, **fields}, timeout_ms=20_000)
        if found.code == 0:
            return decode_message(found.body)


PULL = {
    "consumerGroup": "CG",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


async def test_a_delayed_message_wakes_a_waiting_consumer_after_its_delay(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        sent_at = time.time()
        answer = await send(connection, b"later", i=properties(DELAY="1"))
        assert (answer.code, answer.fields["queueId"]) == (0, "0")
        message = await first_message(connection)
        assert message.body == b"later"
        assert 1.0 <= time.time() - sent_at < 3.0


async def test_with_sync_flush_a_delayed_message_comes_no_later(tmp_path: Path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running_broker(conf) as broker, connected(broker) as connection:
        sent_at = time.time()
        await send(connection, b"later", i=properties(DELAY="1"))
        assert (await first_message(connection)).body == b"later"
        assert 1.0 <= time.time() - sent_at < 3.0


async def test_a_timer_message_survives_a_restart_and_is_not_early(tmp_path: Path):
    conf = broker_conf(tmp_path)
    deliver_ms = int(time.time() * 1000) + 2_500
    async with running_broker(conf) as broker, connected(broker) as connection:
        answer = await send(connection, b"tea", i=properties(TIMER_DELIVER_MS=str(deliver_ms), UNIQ_KEY="K"))
        assert answer.code == 0
        assert answer.fields["recallHandle"]
    async with running_broker(conf) as broker, connected(broker) as connection:
        message = await first_message(connection)
        assert message.body == b"tea"
        assert deliver_ms <= int(time.time() * 1000) < deliver_ms + 3_000
        assert deliver_ms <= message.store_timestamp
    async with running_broker(conf) as broker, connected(broker) as connection:
        await asyncio.sleep(0.3)
        assert len(await pull_messages(connection)) == 1


async def test_a_timer_too_far_away_is_refused(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        answer = await send(connection, i=properties(TIMER_DELAY_SEC="999999999"))
        assert answer.code == 13
        assert answer.remark.startswith("timer message illegal")
        assert "MSG_REGION" in answer.fields


async def test_a_forgotten_transaction_is_asked_about_and_committed(tmp_path: Path):
    conf = broker_conf(tmp_path, transactionCheckInterval=300, transactionTimeOut=200)
    asked: asyncio.Queue[Request] = asyncio.Queue()
    async with running_broker(conf) as broker:
        options = ConnectionOptions(handlers={39: asked.put_nowait})
        producer = await connect(f"127.0.0.1:{broker.conf.broker.listen_port}", options)
        beat = b'{"clientID":"p@1","consumerDataSet":[],"producerDataSet":[{"groupName":"PG"}]}'
        assert (await producer.request(34, body=beat)).code == 0
        pairs = properties(TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="KEY")
        half = await send(producer, b"pay", f="4", g=str(int(time.time() * 1000)), i=pairs)
        assert (half.code, half.fields["transactionId"]) == (0, "KEY")
        question = await asyncio.wait_for(asked.get(), 10)
        assert decode_message(question.body).topic == "T"
        answer = await producer.request(
            37,
            {
                "producerGroup": "PG",
                "tranStateTableOffset": question.fields["tranStateTableOffset"],
                "commitLogOffset": question.fields["commitLogOffset"],
                "commitOrRollback": "8",
                "fromTransactionCheck": "true",
                "msgId": "KEY",
            },
        )
        assert answer.code == 0
        assert (await first_message(producer)).body == b"pay"
        producer.close()


async def test_a_message_sent_back_comes_again_in_the_retry_topic(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        await send(connection, b"hard")
        (message,) = await pull_messages(connection)
        fields = {"offset": str(message.physical_offset), "group": "CG", "delayLevel": "1", "originTopic": "T"}
        assert (await connection.request(36, fields)).code == 0
        again = await first_message(connection, topic="%RETRY%CG")
        assert (again.body, again.reconsume_times) == (b"hard", 1)


async def test_mqadmins_questions_are_answered_on_both_ports(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker, port_below=2) as connection:
        await send(connection)
        for code, fields in ((28, None), (26, None), (202, {"topic": "T"}), (305, None), (907, None), (60, None)):
            answer = await connection.request(code, fields)
            assert answer.code == 0, (code, answer.remark)
            assert answer.body


async def test_only_a_parked_message_can_be_recalled(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        for pairs in ({"TIMER_OUT_MS": "soon"}, {"TIMER_DELAY_SEC": "-1"}):
            answer = await send(connection, i=properties(**pairs))
            assert answer.code == 0
            assert "recallHandle" not in answer.fields
        assert len(await pull_messages(connection)) == 2
