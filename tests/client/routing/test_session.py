"""Name servers, routes, replicas and restarts, as every client meets them."""

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
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
)
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
