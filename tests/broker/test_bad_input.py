"""Whatever a peer sends, the broker answers it or closes the connection, keeps running, and stores nothing broken."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.contexts import open_context, wired
from tests.broker.running import SEND_FIELDS, broker_conf, connected, pull, running_broker, send

from twinlog.broker.clients import client_handlers, lock_handlers, offset_handlers
from twinlog.broker.pulls import pull as pull_module
from twinlog.broker.pulls import query_handlers
from twinlog.broker.sends import send as send_module
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import ConnectionOptions
from twinlog.net.errors import ConnectionLost
from twinlog.wire.command import Command, encode_command

CODES = [10, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 38, 41, 42, 46, 310, 320, 361]
NAMES = ["topic", "consumerGroup", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "offset", "key", "maxNum"]
NAMES += ["beginTimestamp", "endTimestamp", "timestamp", "commitOffset", "subscription", "expressionType", "group"]
NAMES += list("abcdefghijklmn")
BODY = b'{"consumerDataSet":[{}]}'
values = st.one_of(
    st.sampled_from(["0", "-1", "T", "CG", "9" * 20, "true", "SQL92", "TAG", "*", "../etc", "x\x01y\x02"]),
    st.text(max_size=12),
)
commands = st.builds(
    lambda code, fields, body, flag: Command(code, 1, flag, fields=fields, body=body),
    st.sampled_from(CODES),
    st.none() | st.dictionaries(st.sampled_from(NAMES), values, max_size=12),
    st.none() | st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b'{"clientID":5}', BODY]),
    st.sampled_from([0, 0, 2]),
)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    with open_context(tmp_path_factory.mktemp("store")) as ctx:
        ensure_topic(ctx, "T", 4)
        yield ctx


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commands, min_size=1, max_size=6))
def test_every_strange_request_is_answered_once_or_not_at_all(context, given_commands):
    async def play() -> None:
        modules = (send_module, pull_module, query_handlers, client_handlers, offset_handlers, lock_handlers)
        handlers = {code: handler for module in modules for code, handler in module.handlers(context).items()}
        fast = FastSend(context)
        options = ConnectionOptions(handlers, after_batch=fast.finish, fast=fast.take)
        connection, transport = wired(options)
        for command in given_commands:
            try:
                frame = encode_command(command)
            except UnicodeEncodeError:
                continue
            connection.data_received(frame)
        await asyncio.sleep(0)
        answers = [one for one in transport.take_answers() if one.is_response]
        asked = [command for command in given_commands if not command.is_oneway]
        assert len(answers) <= len(asked)
        _drop(context, connection)

    asyncio.run(play())
    at, store = 0, context.store
    while at < store.log_end:  # every record in the log is whole
        message = store.message_at(at)
        assert message is not None
        at += message.store_size


def _drop(context, connection) -> None:
    context.holds.drop(connection)
    context.clients.drop(connection)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 4,
        struct.pack(">iI", 17 * 1024 * 1024, 10) + b"x" * 100,
        struct.pack(">iI", -5, 10) + b"x" * 100,
        struct.pack(">iI", 20, 100) + b"x" * 100,
        struct.pack(">iI", 20, 5 << 24 | 4) + b"x" * 100,
        struct.pack(">iI", 24, 20) + b"not json at all.....",
        b"\x00" * 64,
    ],
)
async def test_bytes_that_are_not_frames_close_the_connection(tmp_path, data):
    async with running_broker(broker_conf(tmp_path)) as broker:
        async with connected(broker) as hostile:
            hostile.send(data)
            with pytest.raises(ConnectionLost):
                await hostile.request(30, {"topic": "T", "queueId": "0"})
        async with connected(broker) as client:
            assert (await send(client)).code == 0


async def test_a_truncated_frame_stores_nothing(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as broker:
        frame = encode_command(Command(310, 1, fields=dict(SEND_FIELDS), body=b"x" * 100))
        async with connected(broker) as hostile:
            hostile.send(frame[:-1])
        async with connected(broker) as client:
            assert (await pull(client)).code == 17  # not even the topic was created


async def test_an_unknown_code_is_named_in_the_answer(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        answer = await client.request(4242)
        assert (answer.code, answer.remark) == (3, " request type 4242 not supported")


async def test_hostile_topic_names_never_reach_the_file_system(tmp_path):
    root = tmp_path / "store"
    async with running_broker(broker_conf(root)) as broker, connected(broker) as client:
        for topic in ("../escape", "a/b", "a\x00b", ".", "..", "%RETRY%../x", "con\\cat", "x" * 300, "中"):
            answer = await send(client, b=topic, c="TBW102")
            assert answer.code == 29, topic
            assert (await pull(client, topic=topic)).code == 17
    assert not (tmp_path / "escape").exists()


async def test_text_that_is_not_unicode_closes_the_connection_and_is_not_stored(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        await send(client)
        end = broker.context.store.log_end
        header = b'{"code":310,"opaque":77,"extFields":{"a":"P","b":"T","c":"TBW102","d":"4","e":"0","f":"0","g":"0",'
        header += b'"h":"0","i":"UNIQ_KEY\\u0001\\ud800\\u0002"}}'
        client.send(struct.pack(">iI", 4 + len(header) + 1, len(header)) + header + b"x")
        with pytest.raises(ConnectionLost):
            await send(client)
        assert broker.context.store.log_end == end
