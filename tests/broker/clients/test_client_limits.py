"""What one client, or all of them together, may make a broker keep."""

from __future__ import annotations

import pytest
from tests.broker.offline import Wire, ask, context
from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.broker.clients import client_handlers
from twinlog.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode

INVALID, NO_GROUP = ResponseCode.INVALID_PARAMETER, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def heartbeat(groups=(), producers=(), client_id="c", topics=()) -> bytes:
    subscriptions = [SubscriptionData(topic=topic) for topic in topics]
    consumers = [ConsumerData(group_name=group, subscription_data_set=subscriptions) for group in groups]
    senders = [ProducerData(group_name=group) for group in producers]
    return encode_body(HeartbeatData(client_id=client_id, consumer_data_set=consumers, producer_data_set=senders))


def beat(ctx, wire=None, **members):
    answer = ask(client_handlers.handlers(ctx), RequestCode.HEART_BEAT, body=heartbeat(**members), wire=wire)
    return answer.code, answer.remark


def test_a_client_id_of_a_megabyte_is_refused_before_anything_is_registered(tmp_path):
    ctx = context(tmp_path)
    code, remark = beat(ctx, groups=["NEW"], client_id="x" * 1_000_000)
    assert code == INVALID
    assert remark == (
        f"a client id of 1000000 characters ({'x' * 40}...): maxClientIdLength is 1024; use a shorter instanceName"
    )
    assert not ctx.clients.consumers and "NEW" not in ctx.groups
    assert ctx.limits.refused == {"maxClientIdLength": 1}


def test_the_groups_of_a_connection_are_counted_over_all_its_heartbeats(tmp_path):
    ctx, wire = context(tmp_path, maxGroupsPerClient=3), Wire()
    assert beat(ctx, wire, groups=["A", "B"], producers=["P"])[0] == 0
    assert beat(ctx, wire, groups=["A", "B"], producers=["P"])[0] == 0
    code, remark = beat(ctx, wire, groups=["C"])
    assert (code, remark) == (
        INVALID,
        "client c in 4 groups on one connection: maxGroupsPerClient is 3; use more clients, or raise it",
    )
    assert "C" not in ctx.groups
    assert beat(ctx, Wire("other"), groups=["C"])[0] == 0


def test_fifty_thousand_groups_in_one_heartbeat_leave_nothing_behind(tmp_path):
    ctx = context(tmp_path)
    topics = len(ctx.topics)
    assert beat(ctx, groups=[f"G{n}" for n in range(50_000)])[0] == INVALID
    assert (len(ctx.groups), len(ctx.topics), len(ctx.clients.consumers)) == (1, topics, 0)


def test_the_subscriptions_of_a_group_have_a_bound(tmp_path):
    ctx = context(tmp_path, maxSubscriptionsPerGroup=2)
    assert beat(ctx, groups=["A"], topics=["T", "U"])[0] == 0
    code, remark = beat(ctx, groups=["A"], topics=["T", "U", "V"])
    assert (code, remark) == (
        INVALID,
        "group A with 3 subscriptions: maxSubscriptionsPerGroup is 2; use more groups, or raise it",
    )


@pytest.mark.parametrize(
    "subscription",
    [
        SubscriptionData(topic="T", sub_string="s" * 1_000),
        SubscriptionData(topic="t" * 1_000),
        SubscriptionData(topic="T", tags_set=["tag"] * 80),
        SubscriptionData(topic="T", tags_set=[""] * 100),
        SubscriptionData(topic="T", code_set=[1] * 100),
        SubscriptionData(topic="T", expression_type="e" * 1_000),
    ],
)
def test_the_text_of_a_groups_subscriptions_has_a_bound(tmp_path, subscription):
    ctx = context(tmp_path, maxSubscriptionLengthPerGroup=1_024)
    for count, expected in ((1, 0), (2, INVALID)):
        consumer = ConsumerData(group_name="A", subscription_data_set=[subscription] * count)
        body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[consumer]))
        answer = ask(client_handlers.handlers(ctx), RequestCode.HEART_BEAT, body=body)
        if expected:
            assert answer.code == expected
            assert answer.remark.endswith(": maxSubscriptionLengthPerGroup is 1024; subscribe to less, or raise it")
    assert ctx.limits.refused == {"maxSubscriptionLengthPerGroup": 1}


@pytest.mark.parametrize("member", ["groups", "producers"])
def test_a_group_name_of_a_megabyte_is_not_kept(tmp_path, member):
    ctx = context(tmp_path)
    assert beat(ctx, **{member: ["g" * 1_000_000]}) == (
        INVALID,
        f"a group name of 1000000 characters ({'g' * 40}...), at most 255 are allowed",
    )
    assert not ctx.clients.consumers and not ctx.clients.producers


def test_clients_create_groups_up_to_the_limit_and_known_groups_are_served_beyond_it(tmp_path):
    ctx = context(tmp_path, maxAutoCreatedGroups=2)
    code, remark = beat(ctx, groups=["A", "B", "C", "G"], producers=["P"])
    assert (code, remark) == (
        NO_GROUP,
        "group C does not exist and is not created: maxAutoCreatedGroups is 2; "
        "create it with updateSubGroup, or raise it",
    )
    assert set(ctx.clients.consumers) == {"A", "B", "G"}
    assert "P" in ctx.clients.producers
    assert "%RETRY%C" not in ctx.topics
    assert ctx.limits.refused == {"maxAutoCreatedGroups": 1}
    ctx.groups.remove("A", 0)
    assert beat(ctx, groups=["C"])[0] == 0


@pytest.mark.parametrize("topic", ["C", "%RETRY%C"])
async def test_sends_create_topics_up_to_the_limit_and_known_topics_are_served_beyond_it(tmp_path, topic):
    conf = broker_conf(tmp_path, maxAutoCreatedTopics=2, maxAutoCreatedGroups=1)
    async with running_broker(conf) as broker, connected(broker) as client:
        ctx = broker.context
        assert [(await send(client, b=name)).code for name in ("A", "B")] == [0, 0]
        refused = await send(client, b=topic)
        assert (refused.code, refused.remark) == (
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic {topic} does not exist and is not created: maxAutoCreatedTopics is 2; "
            "create it with updateTopic, or raise it",
        )
        assert topic not in ctx.topics
        assert (await send(client, b="A")).code == 0
        assert ctx.limits.refused == {"maxAutoCreatedTopics": 1}
        assert (await pull(client, topic="A", consumerGroup="G1")).code == 0
        assert (await send(client, b="%RETRY%G1")).code == 0  # as many as there are groups
        answer = await pull(client, topic="A", consumerGroup="G2")
        assert (answer.code, answer.fields) == (NO_GROUP, {})  # Java reads the fields without looking
        ctx.topics.remove("B", 0)
        assert (await send(client, b="C")).code == 0
