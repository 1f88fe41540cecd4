"""Name servers, routes, replicas and restarts, as every client meets them."""

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    BadArgument,
    ClientOptions,
    ConsumerOptions,
    NetError,
    NoNameServer,
    Outgoing,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    SendFailed,
    StartFrom,
    tls_context,
)
from twinlog.client.routing.client_id import local_ip, make_client_id
from twinlog.client.routing.name_servers import parse_name_servers
from twinlog.client.routing.session import Session
from twinlog.wire.codes import RequestCode, ResponseCode

NOBODY = "127.0.0.1:1"


async def test_a_name_server_that_is_down_is_passed_over(cluster):
    async with Producer(f"{NOBODY};{cluster.address}", "g") as producer:
        await producer.send(Outgoing("T", "x"))
    assert cluster.requests


async def test_when_no_name_server_answers_the_error_names_them_all():
    session = Session(f"{NOBODY};127.0.0.1:2")
    await session.start()
    with pytest.raises(NoNameServer, match=r"127.0.0.1:1;127.0.0.1:2"):
        await session.route("T")
    await session.close()


@pytest.mark.parametrize("text", ["", " ; ", "host", "host:port", "host:0", "host:99999", ":9876"])
def test_an_invalid_address_is_refused_at_once(text):
    with pytest.raises(BadArgument):
        parse_name_servers(text)


def test_addresses_are_separated_by_semicolons_or_commas():
    assert parse_name_servers(" a:1; b:2,c:3 ") == ["a:1", "b:2", "c:3"]


def test_client_ids_are_unique_and_name_this_machine():
    first, second = make_client_id(NOBODY), make_client_id(NOBODY)
    assert first != second
    assert first.startswith("127.0.0.1@")
    assert make_client_id(NOBODY, "billing-1") == "127.0.0.1@billing-1"
    assert local_ip("[::1]:9876") in ("::1", "127.0.0.1")


async def test_the_vip_channel_is_two_ports_below_and_not_for_pulls():
    session = Session("10.0.0.1:9876", ClientOptions(vip_channel=True))
    assert session._port("10.0.0.2:10911", RequestCode.SEND_MESSAGE_V2) == "10.0.0.2:10909"
    assert session._port("10.0.0.2:10911", RequestCode.PULL_MESSAGE) == "10.0.0.2:10911"
    assert session._port("10.0.0.1:9876", RequestCode.GET_ROUTEINFO_BY_TOPIC) == "10.0.0.1:9876"


async def test_a_producer_goes_on_when_its_broker_comes_back(cluster):
    port = cluster.broker.server.port
    options = ProducerOptions(send_timeout_ms=500)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        await producer.send(Outgoing("T", "before"))
        await cluster.broker.server.stop()
        with pytest.raises((SendFailed, NetError)):
            await producer.send(Outgoing("T", "meanwhile"))
        await cluster.broker.server.start("127.0.0.1", port)
        await producer.send(Outgoing("T", "after"))
    assert sorted(m.body for queue in cluster.broker.queues.values() for m in queue) == [b"after", b"before"]


async def test_a_consumer_goes_on_when_its_broker_comes_back_without_memory_of_it(cluster):
    got: list[bytes] = []

    async def listen(message):
        got.append(message.body)

    port = cluster.broker.server.port
    cluster.broker.put(cluster.queue("T"), b"before")
    consumer = PushConsumer(
        cluster.address, "group", listen, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST)
    )
    consumer.subscribe("T")
    async with consumer:
        await until(lambda: got == [b"before"])
        await cluster.broker.server.stop()
        cluster.broker.script(RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_EXIST)
        await cluster.broker.server.start("127.0.0.1", port)
        cluster.broker.put(cluster.queue("T"), b"after")
        await until(lambda: got == [b"before", b"after"])
        assert len(cluster.broker.members["group"]) == 1


async def test_pulls_go_to_the_replica_that_the_master_suggests_and_back_when_it_fails():
    async with FakeCluster(replica=True) as cluster:
        assert cluster.replica is not None
        for broker in (cluster.broker, cluster.replica):
            broker.put(cluster.queue("T"), b"x")
        async with PullConsumer(cluster.address, "g", register=False) as reader:
            cluster.broker.suggested = 1
            await reader.pull(cluster.queue("T"), 0)
            cluster.replica.script(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY)
            await reader.pull(cluster.queue("T"), 0)
        counts = [len(b.requests(RequestCode.PULL_MESSAGE)) for b in (cluster.broker, cluster.replica)]
        assert counts == [2, 1]


async def test_a_replica_is_read_while_its_master_is_away():
    async with FakeCluster(replica=True) as cluster:
        assert cluster.replica is not None
        cluster.replica.put(cluster.queue("T"), b"kept")
        cluster.masters_known = False
        async with PullConsumer(cluster.address, "g", register=False) as reader:
            (message,) = (await reader.pull(cluster.queue("T"), 0)).messages
        assert message.body == b"kept"


async def test_new_queues_of_a_topic_are_read_after_the_next_refresh_of_the_route(cluster):
    got: list[bytes] = []

    async def listen(message):
        got.append(message.body)

    cluster.create("T", 1)
    options = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(
        cluster.address, "group", listen, options=ClientOptions(route_refresh_ms=10), consumer_options=options
    )
    consumer.subscribe("T")
    async with consumer:
        cluster.topics["T"] = 2
        cluster.broker.put(cluster.queue("T", 1), b"new queue")
        await until(lambda: got == [b"new queue"])


@pytest.mark.parametrize("group", ["", "a b", "a/b", "x" * 121])
@pytest.mark.parametrize("make", [Producer, PullConsumer, lambda names, group: PushConsumer(names, group, print)])
def test_a_group_that_no_broker_takes_is_refused_before_anything_is_sent(make, group):
    with pytest.raises(BadArgument, match="is not a valid name: use 1 to 120 of a-z A-Z"):
        make("127.0.0.1:9876", group)


def test_tls_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(BadArgument, match=r"TLS files /no/ca.pem cannot be used"):
        tls_context(ca_file="/no/ca.pem")
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(BadArgument, match=r"c.pem cannot be used"):
        tls_context(cert_file=str(tmp_path / "c.pem"))
