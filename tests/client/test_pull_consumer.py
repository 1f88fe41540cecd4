import pytest
from tests.client.fake_cluster import until

from twinlog.client import BadArgument, BrokerRefused, ClientError, ClientOptions, NoRoute, PullConsumer, PullStatus
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.compression import compress


@pytest.fixture
async def consumer(cluster):
    for i in range(5):
        cluster.broker.put(cluster.queue("T"), b"%d" % i, {"TAGS": "even" if i % 2 == 0 else "odd"})
    async with PullConsumer(cluster.address, "audit") as running:
        yield running


async def test_a_pull_gives_messages_and_where_to_go_on(cluster, consumer):
    result = await consumer.pull(cluster.queue("T"), 1, count_max=2)
    assert [m.body for m in result.messages] == [b"1", b"2"]
    assert (result.status, result.next_offset, result.max_offset) == (PullStatus.FOUND, 3, 5)


async def test_messages_whose_tag_was_not_asked_for_are_left_out(cluster, consumer):
    result = await consumer.pull(cluster.queue("T"), 0, expression="odd || other")
    assert [m.body for m in result.messages] == [b"1", b"3"]
    assert result.next_offset == 5


async def test_compressed_bodies_arrive_inflated(cluster, consumer):
    body, flags = compress(b"tea " * 2000)
    cluster.broker.put(cluster.queue("T", 1), body, flags=flags)
    (message,) = (await consumer.pull(cluster.queue("T", 1), 0)).messages
    assert message.body == b"tea " * 2000
    assert message.sys_flag & 1 == 0


async def test_a_body_that_does_not_inflate_is_delivered_as_it_is(cluster, consumer):
    cluster.broker.put(cluster.queue("T", 1), b"not zlib", flags=1)
    (message,) = (await consumer.pull(cluster.queue("T", 1), 0)).messages
    assert (message.body, message.sys_flag) == (b"not zlib", 1)


async def test_a_body_that_grows_beyond_the_limit_is_delivered_as_it_is(cluster, consumer):
    body, flags = compress(b"tea " * 2000)
    cluster.broker.put(cluster.queue("T", 1), body, flags=flags)
    options = ClientOptions(decompressed_bytes_max=7_999)
    async with PullConsumer(cluster.address, "careful", options=options) as careful:
        (message,) = (await careful.pull(cluster.queue("T", 1), 0)).messages
    assert (message.body, message.sys_flag & 1) == (body, 1)


async def test_offsets_are_found_committed_and_read_back(cluster, consumer):
    queue = cluster.queue("T")
    assert await consumer.queues("T") == (queue, cluster.queue("T", 1))
    assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 5)
    assert await consumer.offset_at(queue, 1_003) == 3
    assert await consumer.committed(queue) is None
    await consumer.commit(queue, 4)
    assert await consumer.committed(queue) == 4


async def test_poll_follows_positions_and_commit_saves_them(cluster, consumer):
    queue = cluster.queue("T")
    consumer.assign({queue: 2})
    assert [m.body for m in await consumer.poll()] == [b"2", b"3", b"4"]
    assert consumer.position(queue) == 5
    await consumer.commit()
    assert cluster.broker.offsets["audit", queue] == 5
    consumer.seek(queue, 4)
    assert [m.body for m in await consumer.poll()] == [b"4"]


async def test_poll_returns_what_arrives_while_it_waits(cluster, consumer):
    queue = cluster.queue("T")
    consumer.assign({queue: 5, cluster.queue("T", 1): 0})
    assert await consumer.poll(timeout_ms=1) == []
    cluster.broker.put(queue, b"late")
    assert [m.body for m in await consumer.poll(timeout_ms=5_000)] == [b"late"]


async def test_a_range_is_read_exactly_or_not_at_all(cluster, consumer):
    queue = cluster.queue("T")
    assert [m.body async for m in consumer.messages(queue, 1, 4)] == [b"1", b"2", b"3"]
    with pytest.raises(ClientError, match=r"offset 5 .* holds 0 to 5"):
        _ = [m async for m in consumer.messages(queue, 4, 9)]


async def test_the_error_for_an_unknown_topic_names_the_command_that_creates_it(consumer):
    with pytest.raises(NoRoute, match="updateTopic -t Nowhere"):
        await consumer.queues("Nowhere")


async def test_positions_exist_only_for_assigned_queues(cluster, consumer):
    with pytest.raises(BadArgument, match=r"assign\(\)"):
        consumer.seek(cluster.queue("T"), 1)
    with pytest.raises(BadArgument, match=r"assign\(\)"):
        await consumer.poll()


async def test_a_reader_is_a_member_of_its_group_unless_it_does_not_want_to(cluster, consumer):
    await consumer.queues("T")
    await until(lambda: cluster.broker.heartbeats)
    (data,) = cluster.broker.heartbeats[0].consumer_data_set
    assert (data.group_name, data.consume_type) == ("audit", "CONSUME_ACTIVELY")
    assert [s.topic for s in data.subscription_data_set] == ["T"]
    count = len(cluster.broker.heartbeats)
    async with PullConsumer(cluster.address, "quiet", register=False) as quiet:
        await quiet.pull(cluster.queue("T"), 0)
    assert len(cluster.broker.heartbeats) == count
    assert not cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)


async def test_a_queue_that_fails_does_not_take_the_messages_of_another_with_it(cluster, consumer):
    cluster.broker.put(cluster.queue("T", 1), b"kept")
    cluster.broker.script(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_ERROR)
    consumer.assign({cluster.queue("T", 1): 0, cluster.queue("T"): 0})
    cluster.broker.scripted[RequestCode.PULL_MESSAGE].insert(0, cluster.broker._pull_message)
    assert await consumer.poll(timeout_ms=0) == []
    await until(lambda: all(pull.done() for pull in consumer._pulls.values()))
    assert [m.body for m in await consumer.poll()] == [b"kept"]
    with pytest.raises(BrokerRefused, match="SYSTEM_ERROR"):
        while True:
            assert await consumer.poll(timeout_ms=0) == []
    assert len(await consumer.poll()) == 5, "and the queue that failed is read again"
