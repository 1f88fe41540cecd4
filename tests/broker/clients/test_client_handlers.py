"""Heartbeats and what follows from them, with frames of a real Java client."""

import json

import pytest
from tests.broker.offline import Wire, ask, context, golden

from twinlog.broker.clients import client_handlers
from twinlog.broker.clients.client_handlers import connection_closed, expire_clients
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, encode_body
from twinlog.wire.codes import RequestCode

SQL = {"topic": "T", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path, enablePropertyFilter=True)


@pytest.fixture
def handlers(ctx):
    return client_handlers.handlers(ctx)


def heartbeat(*topics: str, group: str = "G", client_id: str = "c", **members) -> bytes:
    consumer = ConsumerData(
        group_name=group, subscription_data_set=[SubscriptionData(topic=topic, sub_version=1) for topic in topics]
    )
    return encode_body(HeartbeatData(client_id=client_id, consumer_data_set=[consumer], **members))


def test_a_real_push_consumer_registers_and_is_notified_before_its_answer(ctx, handlers):
    wire = Wire()
    answer = ask(handlers, golden("wire-heartbeat-push-consumer-req"), wire=wire)
    expected = golden("wire-heartbeat-push-consumer-resp")
    assert (answer.code, answer.remark, answer.fields) == (expected.code, expected.remark, expected.fields)
    notice = golden("wire-notify-consumer-ids")
    assert wire.sent == [(notice.code, notice.fields)]
    group = ctx.clients.consumers["VEC_PUSH"]
    assert group.subscriptions["VEC"].sub_string == "TagA || TagB"
    assert "CLIENT_INNER_PRODUCER" in ctx.clients.producers
    retry = ctx.topics.get("%RETRY%VEC_PUSH")
    assert (retry.read_queue_nums, retry.perm) == (1, 6)
    assert "VEC_PUSH" in ctx.groups


def test_a_real_producer_registers(ctx, handlers):
    answer = ask(handlers, golden("wire-heartbeat-producer-req"))
    assert answer.fields == golden("wire-heartbeat-producer-resp").fields
    assert ctx.clients.producers
    assert not ctx.clients.consumers


def test_a_group_that_may_not_be_created_is_skipped(tmp_path):
    ctx = context(tmp_path, autoCreateSubscriptionGroup=False)
    wire = Wire()
    body = heartbeat("T", group="NEW", producer_data_set=[ProducerData(group_name="P")])
    answer = ask(client_handlers.handlers(ctx), RequestCode.HEART_BEAT, body=body, wire=wire)
    assert answer.code == 0
    assert "NEW" not in ctx.clients.consumers
    assert "P" in ctx.clients.producers
    assert wire.sent == []


def test_a_group_with_an_impossible_name_creates_nothing(ctx, handlers):
    ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("T", group="../../etc"))
    assert "../../etc" not in ctx.groups
    assert all("etc" not in topic for topic in ctx.topics.rows)


def test_the_retry_topic_of_an_order_topics_consumer_is_ordered(ctx, handlers):
    ensure_topic(ctx, "ORDERED", 1, order=True)
    ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("ORDERED", group="H"))
    assert ctx.topics.get("%RETRY%H").order


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"clientID":5}', b"\xff"])
def test_a_heartbeat_without_a_readable_body_is_an_error(handlers, body):
    assert ask(handlers, RequestCode.HEART_BEAT, body=body).code == 1


def test_a_second_generation_heartbeat_asks_for_subscriptions_only_when_they_differ(handlers):
    wire = Wire()

    def change(**members) -> str:
        body = heartbeat("T", **members) if not members.get("without_sub") else heartbeat(**members)
        return ask(handlers, RequestCode.HEART_BEAT, body=body, wire=wire).fields["IS_SUB_CHANGE"]

    assert change(heartbeat_fingerprint=5) == "false"
    assert change(heartbeat_fingerprint=5, without_sub=True) == "false"
    assert change(heartbeat_fingerprint=6, without_sub=True) == "true"


def test_a_broker_that_lost_the_subscriptions_asks_for_them(ctx, handlers):
    body = heartbeat(heartbeat_fingerprint=5, without_sub=True)
    assert ask(handlers, RequestCode.HEART_BEAT, body=body).fields["IS_SUB_CHANGE"] == "true"


def test_a_real_client_leaves(ctx, handlers):
    wire, other, request = Wire("1"), Wire("2"), golden("wire-unregister-client-req")
    group = request.fields.get("consumerGroup") or "G"
    request.fields["consumerGroup"] = group
    for each in (wire, other):
        ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("T", group=group), wire=each)
    other.sent.clear()
    answer = ask(handlers, request, wire=wire)
    expected = golden("wire-unregister-client-resp")
    assert (answer.code, answer.fields) == (expected.code, expected.fields)
    assert other.sent == [(40, {"consumerGroup": group})]
    assert list(ctx.clients.consumers[group].clients) == [other]


def test_a_group_that_wants_no_notices_gets_none(ctx, handlers):
    ctx.groups.get("G").notify_consumer_ids_changed_enable = False
    wire = Wire()
    ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("T"), wire=wire)
    assert wire.sent == []


def test_the_others_are_notified_of_a_lost_connection_and_a_silent_one_is_closed(ctx, handlers):
    lost, alive = Wire("1"), Wire("2")
    for wire in (lost, alive):
        ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("T"), wire=wire)
    alive.sent.clear()
    connection_closed(ctx, lost)
    assert alive.sent == [(40, {"consumerGroup": "G"})]
    ctx.clock_ms.now_ms += 120_001
    assert expire_clients(ctx) == 1
    assert alive.close_reason == "no heartbeat"
    assert "G" not in ctx.clients.consumers


def test_the_members_of_a_group_are_listed(ctx, handlers):
    request, expected = golden("wire-consumer-list-req"), golden("wire-consumer-list-resp")
    group = request.fields["consumerGroup"]
    answer = ask(handlers, request)
    assert (answer.code, answer.remark) == (1, f"no consumer for this group, {group}")
    [client_id] = json.loads(expected.body)["consumerIdList"]
    ask(handlers, RequestCode.HEART_BEAT, body=heartbeat("T", group=group, client_id=client_id))
    answer = ask(handlers, request)
    assert (answer.code, answer.body, answer.fields) == (0, expected.body, expected.fields)


@pytest.mark.parametrize(
    ("subscription", "code", "remark"),
    [
        ({"topic": "T", "subString": "a || b", "expressionType": "TAG"}, 0, None),
        ({"topic": "T", "subString": "a || b"}, 0, None),
        (SQL, 0, None),
        ({**SQL, "subString": "a >"}, 23, "Invalid MessageSelector. "),
        ({**SQL, "subString": "(" * 9_000}, 23, "Invalid MessageSelector. "),
        ({**SQL, "expressionType": "XPATH"}, 23, "expression type XPATH"),
    ],
)
def test_a_subscription_is_checked_before_it_is_used(handlers, subscription, code, remark):
    body = json.dumps({"clientId": "c", "group": "G", "namespace": "", "subscriptionData": subscription}).encode()
    answer = ask(handlers, RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code
    assert answer.remark == remark or answer.remark.startswith(remark)


def test_property_filters_are_refused_where_they_are_off(tmp_path):
    handlers = client_handlers.handlers(context(tmp_path))
    answer = ask(handlers, RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps({"subscriptionData": SQL}).encode())
    assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")


def test_a_property_filter_lives_as_long_as_its_group(ctx, handlers):
    consumer = ConsumerData(
        group_name="G",
        subscription_data_set=[SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92", sub_version=1)],
    )
    wire = Wire()
    body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[consumer]))
    ask(handlers, RequestCode.HEART_BEAT, body=body, wire=wire)
    assert not ctx.filters.get("T", "G").is_dead
    connection_closed(ctx, wire)
    assert ctx.filters.get("T", "G").is_dead
