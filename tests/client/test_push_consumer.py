import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    SQL92,
    BadArgument,
    BrokerRefused,
    CacheLimits,
    Consumed,
    ConsumerOptions,
    PushConsumer,
    RetryLater,
    StartFrom,
)
from twinlog.wire.bodies import MessageQueue, ResetOffsetBody, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.message import Message, encode_message

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


class Got:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)


def consumer(cluster: FakeCluster, listener, options: ConsumerOptions = FIRST, topic: str = "T") -> PushConsumer:
    made = PushConsumer(cluster.address, "group", listener, consumer_options=options)
    made.subscribe(topic)
    return made


async def test_messages_before_and_after_the_start_are_delivered_and_committed(cluster):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"before")
    async with consumer(cluster, got):
        await until(lambda: got.messages)
        cluster.broker.put(cluster.queue("T", 1), b"after")
        await until(lambda: len(got.messages) == 2)
    assert got.bodies == [b"after", b"before"]
    assert cluster.broker.offsets["group", cluster.queue("T")] == 1
    assert cluster.broker.offsets["group", cluster.queue("T", 1)] == 1


async def test_a_new_group_starts_at_the_end_by_default(cluster):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"before")
    async with consumer(cluster, got, ConsumerOptions()):
        cluster.broker.put(cluster.queue("T"), b"after")
        await until(lambda: got.messages)
    assert got.bodies == [b"after"]


async def test_a_new_group_can_start_at_a_time(cluster):
    got = Got()
    for i in range(3):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    async with consumer(cluster, got, ConsumerOptions(start_from=StartFrom.TIME, start_time_ms=1_002)):
        await until(lambda: got.messages)
    assert got.bodies == [b"2"]


async def test_a_known_group_goes_on_where_it_was(cluster):
    got = Got()
    for i in range(3):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    cluster.broker.offsets["group", cluster.queue("T")] = 2
    async with consumer(cluster, got):
        await until(lambda: got.messages)
    assert got.bodies == [b"2"]


@pytest.mark.parametrize(("failure", "level"), [(RetryLater(3), 3), (RetryLater(-1), -1), (ValueError("x"), 0)])
async def test_a_failed_message_is_handed_back_and_its_offset_moves_on(cluster, failure, level):
    async def fail(message: Message) -> None:
        raise failure

    message = cluster.broker.put(cluster.queue("T"), b"bad")
    async with consumer(cluster, fail):
        await until(lambda: cluster.broker.sent_back)
    (back,) = cluster.broker.sent_back
    assert (back.offset, back.delay_level, back.group) == (message.physical_offset, level, "group")
    assert cluster.broker.offsets["group", cluster.queue("T")] == 1


async def test_returning_retry_is_as_good_as_raising(cluster):
    cluster.broker.put(cluster.queue("T"), b"bad")
    async with consumer(cluster, lambda message: Consumed.RETRY):
        await until(lambda: cluster.broker.sent_back)


async def test_a_retried_message_shows_the_topic_it_was_sent_to(cluster):
    got = Got()
    cluster.create("T")
    cluster.broker.put(cluster.queue("%RETRY%group"), b"again", {"RETRY_TOPIC": "T"})
    async with consumer(cluster, got):
        await until(lambda: got.messages)
    assert got.messages[0].topic == "T"


async def test_plain_functions_run_beside_the_loop(cluster):
    got: list[bytes] = []
    cluster.broker.put(cluster.queue("T"), b"x")
    async with consumer(cluster, lambda message: got.append(message.body)):
        await until(lambda: got)
    assert got == [b"x"]


async def test_two_members_share_the_queues_and_the_rest_takes_over_when_one_leaves(cluster):
    cluster.create("T", 4)
    async with consumer(cluster, Got()) as first:
        assert len(first.workers) == 4
        async with consumer(cluster, Got()) as second:
            await until(lambda: len(first.workers) == 2 and len(second.workers) == 2)
            assert not set(first.workers) & set(second.workers)
        await until(lambda: len(first.workers) == 4)


async def test_broadcasting_members_each_read_everything_and_keep_their_own_offsets(cluster, tmp_path):
    cluster.broker.put(cluster.queue("T"), b"news")
    options = ConsumerOptions(start_from=StartFrom.FIRST, broadcasting=True, offsets_directory=tmp_path)
    got = Got()
    async with consumer(cluster, got, options):
        await until(lambda: got.messages)
    (file,) = tmp_path.rglob("offsets.json")
    assert decode_body(ResetOffsetBody, file.read_bytes()).offset_table[cluster.queue("T")] == 1
    assert not cluster.broker.offsets
    again = Got()
    async with consumer(cluster, again, options):
        cluster.broker.put(cluster.queue("T"), b"more")
        await until(lambda: again.messages)
    assert again.bodies == [b"more"]


async def test_orderly_consumption_waits_for_a_failed_message_and_never_overtakes(cluster):
    seen: list[bytes] = []

    async def listen(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"1" and message.reconsume_times < 2:
            raise ValueError("not yet")

    for i in range(3):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True, retry_pause_ms=1)
    async with consumer(cluster, listen, options):
        await until(lambda: len(seen) == 5)
        assert cluster.queue("T") in cluster.broker.locks
    assert seen == [b"0", b"1", b"1", b"1", b"2"]
    assert not cluster.broker.locks
    assert cluster.broker.offsets["group", cluster.queue("T")] == 3


async def test_orderly_consumption_gives_up_after_its_retries_and_goes_on(cluster):
    seen: list[bytes] = []

    async def listen(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise ValueError("never")

    cluster.broker.put(cluster.queue("T"), b"bad")
    cluster.broker.put(cluster.queue("T"), b"good")
    options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True, retry_pause_ms=1, retries_max=2)
    async with consumer(cluster, listen, options):
        await until(lambda: b"good" in seen)
    assert seen == [b"bad", b"bad", b"bad", b"good"]
    assert [back.delay_level for back in cluster.broker.sent_back] == [-1]


async def test_an_orderly_member_reads_no_queue_that_another_has_locked(cluster):
    cluster.create("T")
    cluster.broker.locks[cluster.queue("T")] = "somebody"
    async with consumer(cluster, Got(), ConsumerOptions(orderly=True)) as running:
        assert list(running.workers) == [cluster.queue("T", 1)]


@pytest.mark.parametrize("code", [24, 25, 27, 28])
async def test_a_broker_without_the_subscription_gets_a_heartbeat(cluster, code):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"x")
    cluster.broker.script(RequestCode.PULL_MESSAGE, code, code)
    async with consumer(cluster, got):
        await until(lambda: got.messages)
    assert len(cluster.broker.heartbeats) >= 2


async def test_a_pull_that_fails_is_tried_again(cluster):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"x")
    cluster.broker.script(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR)
    async with consumer(cluster, got):
        await until(lambda: got.messages)


async def test_an_offset_outside_the_queue_moves_the_consumer_to_the_brokers_offset(cluster):
    got = Got()
    cluster.create("T")
    cluster.broker.offsets["group", cluster.queue("T")] = 50
    async with consumer(cluster, got):
        await until(lambda: len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) >= 3)
        cluster.broker.put(cluster.queue("T"), b"x")
        await until(lambda: got.messages)
    assert cluster.broker.offsets["group", cluster.queue("T")] == 1


async def test_pulling_stops_while_the_cache_is_full(cluster):
    gate = asyncio.Event()

    async def listen(message: Message) -> None:
        await gate.wait()

    for i in range(6):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    options = ConsumerOptions(start_from=StartFrom.FIRST, pull_count_max=2, limits=CacheLimits(messages_max=2))
    async with consumer(cluster, listen, options) as running:
        worker = running.workers[cluster.queue("T")]
        await until(lambda: len(worker.process) == 2)
        await asyncio.sleep(0.02)
        assert len(worker.process) == 2
        gate.set()
        await until(lambda: worker.process.commit_offset == 6)


async def test_a_reset_from_the_broker_moves_the_consumer_back(cluster):
    got = Got()
    for i in range(3):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    async with consumer(cluster, got):
        await until(lambda: len(got.messages) == 3)
        (connection,) = cluster.broker.members["group"]
        body = encode_body(ResetOffsetBody(offset_table={cluster.queue("T"): 1}))
        connection.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "group"}, body)
        cluster.broker.put(cluster.queue("T"), b"3")  # wakes the held pull
        await until(lambda: len(got.messages) >= 6)
    assert got.bodies == [b"0", b"1", b"1", b"2", b"2", b"3"]


async def test_admins_can_ask_a_consumer_how_it_is(cluster):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"x")
    async with consumer(cluster, got):
        await until(lambda: got.messages)
        (connection,) = cluster.broker.members["group"]
        fields = {"consumerGroup": "group"}
        info = loads((await connection.request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)).body)
        status = await connection.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T"})
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert info["statusTable"]["T"]["consumeFailedMsgs"] == 0
    assert {dict(key)["queueId"]: row["commitOffset"] for key, row in info["mqTable"].items()} == {0: 1, 1: 0}
    assert {dict(key)["queueId"]: at for key, at in loads(status.body)["messageQueueTable"].items()} == {0: 1, 1: 0}


@pytest.mark.parametrize(("body", "result"), [(b"good", "CR_SUCCESS"), (b"bad", "CR_THROW_EXCEPTION")])
async def test_admins_can_have_one_message_consumed_now(cluster, body, result):
    async def listen(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("broken")

    cluster.create("T")
    async with consumer(cluster, listen):
        (connection,) = cluster.broker.members["group"]
        record = encode_message(Message(topic="T", body=body))
        answer = await connection.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "group"}, record)
    assert loads(answer.body)["consumeResult"] == result


async def test_a_broken_sql_expression_is_refused_at_the_start(cluster):
    cluster.create("T")
    cluster.broker.script(RequestCode.CHECK_CLIENT_CONFIG, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
    made = PushConsumer(cluster.address, "group", Got())
    made.subscribe("T", "a >", SQL92)
    with pytest.raises(BrokerRefused, match="SUBSCRIPTION_PARSE_FAILED"):
        await made.start()


async def test_a_consumer_without_subscription_is_refused(cluster):
    with pytest.raises(BadArgument, match=r"subscribe\(\)"):
        await PushConsumer(cluster.address, "group", Got()).start()


async def test_a_topic_that_appears_later_is_read_from_then_on(cluster):
    got = Got()
    async with consumer(cluster, got, topic="Later"):
        cluster.broker.put(MessageQueue("Later", "broker-a", 0), b"x")
        await until(lambda: got.messages)


async def test_topics_can_be_added_and_dropped_while_running(cluster):
    got = Got()
    cluster.create("T")
    cluster.broker.put(cluster.queue("U"), b"u")
    async with consumer(cluster, got) as running:
        running.subscribe("U")
        await until(lambda: got.messages)
        running.unsubscribe("T")
        await until(lambda: {queue.topic for queue in running.workers} == {"U"})


async def test_many_members_come_and_go_without_losing_a_message(cluster):
    cluster.create("T", 4)
    seen: list[Message] = []

    async def listen(message: Message) -> None:
        seen.append(message)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(consumer(cluster, listen))
        for round_ in range(5):
            async with consumer(cluster, listen):
                for i in range(4):
                    cluster.broker.put(cluster.queue("T", i), b"%d-%d" % (round_, i))
        await until(lambda: len({m.body for m in seen}) == 20)


async def test_a_cancellation_inside_the_listener_is_a_failure_and_not_the_end(cluster):
    seen: list[bytes] = []

    async def listen(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"cancelled":
            raise asyncio.CancelledError

    cluster.broker.put(cluster.queue("T"), b"cancelled")
    cluster.broker.put(cluster.queue("T"), b"after")
    async with consumer(cluster, listen, ConsumerOptions(start_from=StartFrom.FIRST, concurrency=1)):
        await until(lambda: b"after" in seen and cluster.broker.sent_back)


async def test_an_orderly_member_takes_a_queue_as_soon_as_its_lock_is_free(cluster):
    got = Got()
    cluster.broker.put(cluster.queue("T"), b"x")
    cluster.broker.locks[cluster.queue("T")] = "somebody"
    async with consumer(cluster, got, ConsumerOptions(orderly=True, start_from=StartFrom.FIRST)):
        cluster.broker.locks.clear()
        await until(lambda: got.messages)


async def test_a_consumer_whose_credentials_are_refused_does_not_start(cluster):
    cluster.create("T")
    cluster.broker.script(RequestCode.HEART_BEAT, ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerRefused, match="credentials"):
        await consumer(cluster, Got()).start()


async def test_messages_before_the_asked_offset_are_not_consumed_again(cluster):
    got = Got()
    for i in range(3):
        cluster.broker.put(cluster.queue("T"), b"%d" % i)
    cluster.broker.offsets["group", cluster.queue("T")] = 2

    def whole_batch(request):
        body = b"".join(map(encode_message, cluster.broker.queues[cluster.queue("T")]))
        return request.reply(fields={"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3"}, body=body)

    cluster.create("T", 1)
    cluster.topics["T"] = 1
    cluster.broker.script(RequestCode.PULL_MESSAGE, whole_batch)
    async with consumer(cluster, got) as running:
        await until(lambda: running.workers[cluster.queue("T")].process.commit_offset == 3)
    assert got.bodies == [b"2"]


async def test_a_subscription_to_a_topic_that_does_not_exist_is_warned_about_once(cluster, caplog):
    def asked() -> int:
        return sum((request.fields or {})["topic"] == "Misspelled" for request in cluster.requests)

    reader = consumer(cluster, Got(), topic="Misspelled")
    async with reader:
        for _ in range(2):
            before = asked()
            reader.rebalance_soon()
            await until(lambda before=before: asked() > before)
    named = [record for record in caplog.records if "does not exist" in record.getMessage()]
    assert len(named) == 1 and "Misspelled" in caplog.text and "updateTopic" in caplog.text
