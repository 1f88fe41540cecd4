"""Servers that answer nonsense: every call ends with an error of ours, and the client goes on."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    Admin,
    ClientError,
    ConsumerOptions,
    NetError,
    Outgoing,
    Producer,
    PullConsumer,
    PushConsumer,
    StartFrom,
)
from twinlog.client.consuming.pulling import read_pull_answer, subscription_of
from twinlog.net.connection import Request
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError

OURS = (ClientError, NetError, WireError)


def answer(fields: dict[str, str] | None = None, body: bytes | None = None):
    return lambda request: request.reply(fields=fields, body=body)


@pytest.mark.parametrize("fields", [{"queueOffset": "many"}, {"queueId": ""}])
async def test_a_send_answer_without_numbers_is_an_error_that_names_the_field(cluster, fields):
    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, answer(fields))
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(WireError, match=next(iter(fields))):
            await producer.send(Outgoing("T", "x"))
        await producer.send(Outgoing("T", "y"))


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"{", b'{"queueDatas":7}', b"\xff\xfe"])
async def test_a_route_that_does_not_parse_is_an_error(cluster, body, monkeypatch):
    cluster.names._options.handlers = {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer(body=body)}
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(OURS):
            await producer.send(Outgoing("T", "x"))


@pytest.mark.parametrize("fields", [None, {}, {"offset": "x"}])
async def test_an_offset_that_is_not_a_number_is_an_error(cluster, fields):
    cluster.create("T")
    cluster.broker.script(RequestCode.GET_MAX_OFFSET, answer(fields))
    async with PullConsumer(cluster.address, "g") as consumer:
        with pytest.raises(WireError, match="offset"):
            await consumer.max_offset(cluster.queue("T"))


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_any_pull_answer_is_read_or_refused(body, fields):
    command = Command(0, fields=fields, body=body or None)
    with contextlib.suppress(WireError):
        read_pull_answer(command, subscription_of("T", "*"))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    body=st.one_of(st.binary(max_size=60), st.sampled_from([b"{}", b"[]", b"null", b'{"table":5}', b'{"a":{"b":1}}']))
)
async def test_any_admin_answer_is_read_or_refused(body):
    async with FakeCluster() as cluster, Admin(cluster.address) as admin:
        cluster.broker.server._options.handlers = dict.fromkeys(RequestCode, answer({}, body))
        for call in (admin.runtime_info, admin.topic_configs, admin.groups, admin.producers, admin.ha_status):
            with contextlib.suppress(OURS):
                await call(cluster.broker.address)


async def test_a_consumer_survives_pulls_that_make_no_sense(cluster):
    got = []

    async def listen(message):
        got.append(message.body)

    cluster.broker.put(cluster.queue("T"), b"x")
    cluster.broker.script(RequestCode.PULL_MESSAGE, answer({}, b"no record"), answer({"nextBeginOffset": "x"}, None))
    options = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(cluster.address, "group", listen, consumer_options=options)
    consumer.subscribe("T")
    async with consumer:
        await until(lambda: got)
    assert got == [b"x"]


@pytest.mark.parametrize("code", [39, 40, 220, 221, 307, 309, 326])
async def test_requests_from_a_broker_that_make_no_sense_do_no_harm(cluster, code):
    async def listen(message):
        pass

    cluster.create("T")
    consumer = PushConsumer(cluster.address, "group", listen)
    consumer.subscribe("T")
    async with consumer, Producer(cluster.address, "g", check_transaction=lambda message: None) as producer:
        await producer.send(Outgoing("T", "x"))
        for connection in list(cluster.broker.server.connections):
            connection.oneway(code, {"nonsense": "x"}, b"nonsense")
            answered = await connection.request(307, {"consumerGroup": "group"})
            assert isinstance(answered, Request)


async def test_a_route_with_an_invalid_address_is_an_error_that_names_it(cluster):
    cluster.create("T")
    cluster._addresses = lambda broker: {0: "..:5"}
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(ClientError, match=r"address '\.\.:5' is not host:port: the host is not a host name"):
            await producer.send(Outgoing("T", "x"))


async def test_a_bad_address_of_one_broker_does_not_keep_the_others_from_being_used():
    async with FakeCluster(brokers=2) as cluster:
        cluster.create("T")
        given = cluster._addresses
        cluster._addresses = lambda broker: {0: "..:5"} if broker is cluster.brokers[1] else given(broker)
        got = []

        async def listen(message):
            got.append(message.body)

        consumer = PushConsumer(
            cluster.address, "group", listen, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST)
        )
        consumer.subscribe("T")
        async with consumer, Producer(cluster.address, "g") as producer:
            assert {(await producer.send(Outgoing("T", f"{i}"))).queue.broker_name for i in range(4)} == {"broker-a"}
            await until(lambda: len(got) == 4)
