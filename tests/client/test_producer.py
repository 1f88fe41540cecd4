import asyncio

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    BadMessage,
    BatchPartlySent,
    BrokerRefused,
    ClientClosed,
    ClientOptions,
    Credentials,
    NoRoute,
    Outcome,
    Outgoing,
    Producer,
    ProducerOptions,
    SendFailed,
    SendStatus,
)
from twinlog.client.signing import signature
from twinlog.net.connection import Request
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import CheckTransactionHeader, EndTransactionHeader, SendHeaderV2
from twinlog.wire.message import Message, encode_message


async def test_a_message_is_stored_and_the_result_has_its_offset(cluster):
    async with Producer(cluster.address, "g") as producer:
        sent = await producer.send(Outgoing("T", b"tea", tags="hot", keys="k"))
    stored = cluster.broker.queues[sent.queue][sent.queue_offset]
    assert (sent.status, stored.body, stored.tags, stored.keys) == (SendStatus.OK, b"tea", "hot", ["k"])
    assert sent.message_id == stored.message_id
    assert len(sent.message_id) == 32


async def test_an_unknown_topic_borrows_the_route_of_the_default_topic(cluster):
    async with Producer(cluster.address, "g", producer_options=ProducerOptions(new_topic_queues=3)) as producer:
        queues = await producer.queues("New")
    assert [(queue.topic, queue.queue_id) for queue in queues] == [("New", 0), ("New", 1), ("New", 2)]


async def test_a_batch_lands_in_one_queue_in_order(cluster):
    async with Producer(cluster.address, "g") as producer:
        sent = await producer.send_batch([Outgoing("T", f"{i}") for i in range(3)])
    assert [m.body for m in cluster.broker.queues[sent.queue]] == [b"0", b"1", b"2"]
    assert sent.message_id.split(",") == [m.message_id for m in cluster.broker.queues[sent.queue]]


async def test_a_list_above_the_limit_leaves_in_parts_of_one_queue_with_one_result(cluster):
    options = ProducerOptions(message_bytes_max=2_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        sent = await producer.send_batch([Outgoing("T", f"{i:03}" * 100) for i in range(9)])
    stored = cluster.broker.queues[sent.queue]
    assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 3
    assert [m.body[:3] for m in stored] == [b"%03d" % i for i in range(9)]
    assert sent.message_id.split(",") == [m.message_id for m in stored]
    assert sent.offset_message_id.split(",") == [m.offset_message_id for m in stored]
    assert sent.queue_offset == 0


async def test_a_message_that_only_fits_alone_is_sent_alone_in_its_place(cluster):
    options = ProducerOptions(message_bytes_max=1_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        sent = await producer.send_batch([Outgoing("T", body) for body in ("a", "b" * 990, "c")])
    assert [m.body[:1] for m in cluster.broker.queues[sent.queue]] == [b"a", b"b", b"c"]
    assert len(cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1


async def test_a_batch_that_fails_half_way_names_how_many_messages_are_stored(cluster):
    cluster.broker.script(RequestCode.SEND_BATCH_MESSAGE, cluster.broker._send_batch_message, ResponseCode.SYSTEM_ERROR)
    options = ProducerOptions(message_bytes_max=2_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        with pytest.raises(BatchPartlySent, match=r"first 4 of 9 messages are stored.*SYSTEM_ERROR") as failed:
            await producer.send_batch([Outgoing("T", f"{i:03}" * 100) for i in range(9)])
    assert failed.value.stored == 4
    assert len(cluster.broker.queues[failed.value.sent.queue]) == 4


async def test_a_batch_of_two_topics_is_refused_before_anything_is_sent(cluster):
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(BadMessage, match="one topic"):
            await producer.send_batch([Outgoing("T", "a"), Outgoing("U", "b")])
    assert not cluster.broker.queues


@pytest.mark.parametrize("body", [3, {1: 2}, ["tea"], None])
async def test_a_body_that_is_neither_bytes_nor_text_is_refused(cluster, body):
    cluster.create("T", 1)
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(BadMessage, match=f"is a {type(body).__name__}: give bytes or text"):
            await producer.send(Outgoing("T", body))
        await producer.send(Outgoing("T", memoryview(b"tea")))
    assert len(cluster.broker.queues) == 1


@pytest.mark.parametrize("given", [{"tags": 3}, {"sharding_key": 7}])
async def test_tags_and_a_sharding_key_that_are_not_text_are_refused(cluster, given):
    ((name, value),) = given.items()
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(BadMessage, match=f"{name}={value}.* is not text, so convert it"):
            await producer.send(Outgoing("T", "tea", **given))
    assert not cluster.broker.queues


def test_members_that_are_none_are_left_out():
    """Programs pass on what another message has, or has not."""
    assert Outgoing("T", "tea", tags=None, keys=None, sharding_key=None) == Outgoing("T", "tea")


async def test_messages_with_one_sharding_key_share_a_queue(cluster):
    cluster.create("T", 8)
    async with Producer(cluster.address, "g") as producer:
        sent = [await producer.send(Outgoing("T", "x", sharding_key="order-7")) for _ in range(5)]
    assert len({result.queue for result in sent}) == 1
    assert [result.queue_offset for result in sent] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
async def test_a_refused_send_goes_to_another_broker(code):
    async with FakeCluster(brokers=2) as cluster, Producer(cluster.address, "g") as producer:
        cluster.create("T")
        for broker in cluster.brokers:
            broker.script(RequestCode.SEND_MESSAGE_V2, code)
        sent = await producer.send(Outgoing("T", "x"))
        tried = [broker.name for broker in cluster.brokers if broker.requests(RequestCode.SEND_MESSAGE_V2)]
        assert (sent.status, len(tried)) == (SendStatus.OK, 2)


async def test_a_message_that_no_broker_takes_fails_with_every_reason(cluster):
    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, 1, 1, 17)
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(SendFailed, match=r"after 3 attempts.*SYSTEM_ERROR.*\(2 times\).*TOPIC_NOT_EXIST") as failed:
            await producer.send(Outgoing("T", "x"))
    assert len(failed.value.attempts) == 3


@pytest.mark.parametrize("code", [2, 11, 14, 1500])
async def test_a_broker_that_stored_nothing_is_asked_again_while_there_is_time(cluster, code):
    if code != ResponseCode.SLAVE_NOT_AVAILABLE:  # to a send it means: stored
        cluster.broker.script(RequestCode.SEND_MESSAGE_V2, *[code] * 4)
    cluster.broker.script(RequestCode.END_TRANSACTION, *[code] * 4)
    options = ProducerOptions(retries=0, send_timeout_ms=15_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        await producer.send_in_transaction(Outgoing("T", "x"), lambda _: Outcome.COMMIT)
    assert len(cluster.broker.requests(RequestCode.END_TRANSACTION)) == 5


async def test_many_sends_that_fail_together_are_few_questions_to_the_name_server(cluster):
    cluster.create("T")
    options = ProducerOptions(send_timeout_ms=1_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        await producer.send(Outgoing("T", "x"))
        await cluster.broker.server.stop()
        asked = len(cluster.requests)
        results = await asyncio.gather(*(producer.send(Outgoing("T", "x")) for _ in range(200)), return_exceptions=True)
    assert all(isinstance(result, SendFailed) for result in results)
    assert len(cluster.requests) - asked <= 8, "at 0, 100, 300, 700 ms, and a little for other doubts"


async def test_a_send_waits_for_a_master_that_is_not_registered_yet(cluster):
    cluster.create("T")
    cluster.masters_known = False
    async with Producer(cluster.address, "g", producer_options=ProducerOptions(send_timeout_ms=15_000)) as producer:
        sends = [
            asyncio.create_task(producer.send(Outgoing("T", "x"))),
            asyncio.create_task(producer.send(Outgoing("T", "x", sharding_key="k"))),
            asyncio.create_task(producer.send_oneway(Outgoing("T", "x"))),
        ]
        await until(lambda: len(cluster.requests) >= 3)
        cluster.masters_known = True
        await asyncio.gather(*sends)
        cluster.masters_known = False
        await producer.session.renewed_route("T", 15_000)
        with pytest.raises(NoRoute, match="broker 'broker-a' of topic 'T' has no master"):
            await producer.send(Outgoing("T", "x"), timeout_ms=50)


async def test_a_refusal_that_another_broker_would_repeat_is_raised_at_once(cluster):
    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(BrokerRefused, match=r"MESSAGE_ILLEGAL.*check the size") as refused:
            await producer.send(Outgoing("T", "x"))
    assert (refused.value.code, refused.value.remark, refused.value.address) == (13, "scripted", cluster.broker.address)
    assert len(cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1


async def test_an_ordered_send_is_never_moved_to_another_queue(cluster):
    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, 0, ResponseCode.SYSTEM_ERROR)
    cluster.broker.scripted[RequestCode.SEND_MESSAGE_V2][1] = cluster.broker._send_message_v2
    async with Producer(cluster.address, "g") as producer:
        sent = await producer.send(Outgoing("T", "x", sharding_key="k"))
        with pytest.raises(BrokerRefused, match="SYSTEM_ERROR"):
            await producer.send(Outgoing("T", "x", sharding_key="k"))
    asked = [decode_fields(SendHeaderV2, r.fields) for r in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)]
    assert [header.queue_id for header in asked] == [sent.queue.queue_id] * 3


async def test_stored_but_not_replicated_is_a_status_and_not_an_error(cluster):
    fields = {"msgId": "7F00000100004DC70000000000000000", "queueId": "1", "queueOffset": "4"}

    def flush_slave_timeout(request: Request):
        return request.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, fields=fields)

    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, flush_slave_timeout)
    async with Producer(cluster.address, "g") as producer:
        sent = await producer.send(Outgoing("T", "x"))
    assert (sent.status, sent.queue.queue_id, sent.queue_offset) == (SendStatus.FLUSH_SLAVE_TIMEOUT, 1, 4)


async def test_a_broker_that_does_not_answer_costs_the_send_timeout_and_no_more(cluster):
    cluster.broker.script(RequestCode.SEND_MESSAGE_V2, lambda request: None)
    async with Producer(cluster.address, "g", producer_options=ProducerOptions(send_timeout_ms=50)) as producer:
        with pytest.raises(SendFailed, match="did not answer"):
            await producer.send(Outgoing("T", "x"))


async def test_requests_are_signed_when_there_are_credentials(cluster):
    options = ClientOptions(credentials=Credentials("key", "secret"))
    async with Producer(cluster.address, "g", options=options) as producer:
        await producer.send(Outgoing("T", "x"))
    for request in (cluster.requests[0], cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)[0]):
        assert request.fields["Signature"] == signature(request.fields, request.body, "secret")
        assert request.language == "PYTHON"


async def test_a_producer_sends_heartbeats_to_the_brokers_of_its_topics_and_unregisters(cluster):
    async with Producer(cluster.address, "g") as producer:
        await producer.send(Outgoing("T", "x"))
        await until(lambda: cluster.broker.heartbeats)
        assert [p.group_name for p in cluster.broker.heartbeats[0].producer_data_set] == ["g"]
    assert cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)[0].fields["producerGroup"] == "g"


async def test_a_lost_connection_is_replaced_and_introduced_again(cluster):
    async with Producer(cluster.address, "g") as producer:
        await producer.send(Outgoing("T", "x"))
        await until(lambda: len(cluster.broker.heartbeats) == 1)
        for connection in list(cluster.broker.server.connections):
            connection.close("test")
        await until(lambda: len(cluster.broker.heartbeats) == 2)


@pytest.mark.parametrize("outcome", [Outcome.COMMIT, Outcome.ROLLBACK])
async def test_a_transaction_ends_with_the_outcome_of_its_local_part(cluster, outcome):
    async with Producer(cluster.address, "g") as producer:
        result = await producer.send_in_transaction(Outgoing("T", "x"), lambda message: outcome)
        await until(lambda: cluster.broker.requests(RequestCode.END_TRANSACTION))
    end = decode_fields(EndTransactionHeader, cluster.broker.requests(RequestCode.END_TRANSACTION)[0].fields)
    half = cluster.broker.queues[result.sent.queue][0]
    assert half.properties["TRAN_MSG"] == "true" and half.sys_flag == 4
    assert end.commit_or_rollback == {Outcome.COMMIT: 8, Outcome.ROLLBACK: 12}[outcome]
    assert (end.commit_log_offset, end.producer_group) == (half.physical_offset, "g")


async def test_a_transaction_ends_at_once_even_while_no_name_server_has_its_new_topic(cluster):
    async with Producer(cluster.address, "g") as producer:
        cluster.create = lambda topic, queues=0: None  # no name server has the topic yet
        await producer.send_in_transaction(Outgoing("Unheard", "x"), lambda message: Outcome.COMMIT)
        assert len(cluster.broker.requests(RequestCode.END_TRANSACTION)) == 1


async def test_a_local_part_that_raises_leaves_the_outcome_to_the_check_back(cluster):
    def fail(message: Outgoing) -> Outcome:
        raise KeyError("database")

    async with Producer(cluster.address, "g") as producer:
        with pytest.raises(KeyError):
            await producer.send_in_transaction(Outgoing("T", "x"), fail)
    assert not cluster.broker.requests(RequestCode.END_TRANSACTION)


async def test_a_broker_that_asks_about_a_transaction_is_answered(cluster):
    asked: list[Message] = []

    async def check(message: Message) -> Outcome:
        asked.append(message)
        return Outcome.COMMIT

    async with Producer(cluster.address, "g", check_transaction=check) as producer:
        await producer.send(Outgoing("T", "x"))
        (connection,) = cluster.broker.server.connections
        header = CheckTransactionHeader(tran_state_table_offset=3, commit_log_offset=99, msg_id="ID")
        body = encode_message(Message(topic="T", body=b"half"))
        connection.oneway(RequestCode.CHECK_TRANSACTION_STATE, encode_fields(header), body)
        await until(lambda: cluster.broker.requests(RequestCode.END_TRANSACTION))
    end = decode_fields(EndTransactionHeader, cluster.broker.requests(RequestCode.END_TRANSACTION)[0].fields)
    assert [message.body for message in asked] == [b"half"]
    assert (end.commit_or_rollback, end.from_transaction_check, end.commit_log_offset) == (8, True, 99)


async def test_the_error_of_a_closed_producer_names_the_way_to_use_it(cluster):
    producer = Producer(cluster.address, "g")
    with pytest.raises(ClientClosed, match="async with"):
        await producer.send(Outgoing("T", "x"))


async def test_a_oneway_send_is_marked_so_and_stored(cluster):
    async with Producer(cluster.address, "g") as producer:
        message_id = await producer.send_oneway(Outgoing("T", "x"))
        await until(lambda: cluster.broker.requests(RequestCode.SEND_MESSAGE_V2))
    assert cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)[0].is_oneway
    assert [m.message_id for messages in cluster.broker.queues.values() for m in messages] == [message_id]


async def test_a_name_server_that_forgot_a_topic_does_not_stop_its_producers(cluster):
    async with Producer(cluster.address, "g", options=ClientOptions(route_refresh_ms=1)) as producer:
        await producer.send(Outgoing("T", "x"))
        await until(lambda: not (producer.session.known_route("T") or pytest.fail("no route")).is_default)
        cluster.topics.clear()
        asked = len(cluster.requests)
        await until(lambda: len(cluster.requests) > asked + 2)
        assert (await producer.send(Outgoing("T", "y"))).status is SendStatus.OK


async def test_a_broker_that_goes_away_politely_is_left_for_another():
    async with FakeCluster(brokers=2) as cluster, Producer(cluster.address, "g") as producer:
        cluster.create("T")
        for broker in cluster.brokers:
            broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.GO_AWAY)
        assert (await producer.send(Outgoing("T", "x"))).status is SendStatus.OK


async def test_the_time_that_connecting_takes_is_part_of_a_sends_time(cluster):
    async with Producer(cluster.address, "g") as producer:
        await producer.queues("T")
        connect, ask, asked = producer.session.connect, producer._sender._ask, []

        async def connect_slowly(*args):
            await asyncio.sleep(0.3)
            return await connect(*args)

        async def note(connection, draft, queue, timeout_ms):
            asked.append(timeout_ms)
            return await ask(connection, draft, queue, timeout_ms)

        producer.session.connect, producer._sender._ask = connect_slowly, note
        producer.session._pool.drop(cluster.broker.address)
        await producer.send(Outgoing("T", "x"), timeout_ms=15_000)
    assert len(asked) == 1 and asked[0] <= 14_700
