"""What one client, or all of them together, may make a broker keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.offline import Wire, ask, context
from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.broker.clients import client_handlers
from twinlog.broker.clients.client_table import Client, ClientTable, subscription_length
from twinlog.metadata.filters import row_length
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


def test_all_clients_together_have_a_bound_and_who_leaves_makes_room(tmp_path):
    ctx, first = context(tmp_path, maxClientRegistrations=3), Wire("first")
    assert beat(ctx, first, groups=["A"], producers=["P"])[0] == 0
    assert beat(ctx, first, groups=["A"], producers=["P"])[0] == 0
    assert beat(ctx, Wire("second"), groups=["A"])[0] == 0
    assert ctx.clients.registrations == 3
    third = Wire("third")
    assert beat(ctx, third, groups=["B"]) == (
        INVALID,
        "client c would make it 4 places in groups of this broker: maxClientRegistrations is 3; "
        "close some clients, or raise it",
    )
    assert "B" not in ctx.groups and ctx.limits.refused == {"maxClientRegistrations": 1}
    assert beat(ctx, first, groups=["A"], producers=["P"])[0] == 0  # who is registered stays
    ctx.clients.drop(first)
    assert ctx.clients.registrations == 1
    assert beat(ctx, third, groups=["B"], producers=["Q"])[0] == 0


def test_the_subscriptions_of_all_groups_together_have_a_bound(tmp_path):
    ctx, first = context(tmp_path, maxSubscriptionLength=100), Wire("first")
    assert beat(ctx, first, groups=["A"], topics=["t" * 60])[0] == 0
    code, remark = beat(ctx, Wire("second"), groups=["B"], topics=["u" * 60])
    assert code == INVALID
    assert remark.endswith(": maxSubscriptionLength is 100; subscribe to less, or raise it")
    assert beat(ctx, first, groups=["A"], topics=["t" * 60])[0] == 0
    assert beat(ctx, first, groups=["A"], topics=["t"])[0] == 0
    assert beat(ctx, Wire("second"), groups=["B"], topics=["u" * 60])[0] == 0
    for peer in list(ctx.clients.connections()):
        ctx.clients.drop(peer)
    assert (ctx.clients.subscription_length, ctx.clients.registrations) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("ABC"), st.sampled_from("cpulx"), st.integers(0, 3))))
def test_the_counts_are_those_of_what_is_kept(steps):
    table = ClientTable()
    peers = {name: Wire(name) for name in "abc"}
    for now_ms, (peer, group, step, topics) in enumerate(steps):
        wire = peers[peer]
        match step:
            case "c":
                subscriptions = [SubscriptionData(topic="t" * (1 + n), tags_set=["x"] * n) for n in range(topics)]
                data = ConsumerData(group_name=group, subscription_data_set=subscriptions)
                table.register_consumer(Client(wire, f"id{topics}"), data, now_ms)
            case "p":
                table.register_producer(Client(wire, f"id{topics}"), group, now_ms)
            case "u":
                table.unregister_consumer(wire, group)
            case "l":
                table.unregister_producer(wire, group)
            case _:
                table.drop(wire)
    groups = [*(one.clients for one in table.consumers.values()), *table.producers.values()]
    assert table.registrations == sum(map(len, groups))
    kept = [one for group in table.consumers.values() for one in group.subscriptions.values()]
    assert table.subscription_length == sum(map(subscription_length, kept))


def test_filters_that_find_no_room_are_not_kept_and_dead_ones_make_room(tmp_path):
    ctx = context(tmp_path, maxFilterLength=4_000)

    def sql(group: str, topic: str) -> tuple[int, str]:
        subscription = SubscriptionData(topic=topic, sub_string="a > 1", expression_type="SQL92", sub_version=1)
        consumer = ConsumerData(group_name=group, subscription_data_set=[subscription])
        body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[consumer]))
        return ask(client_handlers.handlers(ctx), RequestCode.HEART_BEAT, body=body, wire=Wire(group)).code

    for number in range(7):
        assert sql(f"G{number}", "T") == 0
    assert ctx.limits.refused == {} and len(ctx.filters.of_topic("T")) == 7
    assert sql("G7", "T") == 0  # its pulls are refused, as those of a filter that cannot be read
    assert ctx.limits.refused == {"maxFilterLength": 1} and ctx.filters.get("T", "G7") is None
    ctx.clients.drop(next(iter(ctx.clients.consumers["G0"].clients)))
    assert sql("G8", "T") == 0
    assert ctx.filters.get("T", "G0") is None and ctx.filters.get("T", "G8") is not None
    rows = [row for rows in ctx.filters.rows.values() for row in rows.values()]
    assert ctx.filters.length == sum(row_length(row.consumer_group, row.topic, row.expression) for row in rows)


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
