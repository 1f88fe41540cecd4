"""Queue counts have a bound wherever a peer can name one, and topics with very many queues do not stop the loop."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.offline import ask, context
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.broker.stored import stored_context

from twinlog.broker import group_handlers, reset_handlers, stats_handlers, topic_handlers
from twinlog.broker.topic_limits import QUEUES_PER_TURN, Turns
from twinlog.metadata.topics import TopicsFile
from twinlog.wire.bodies import (
    DataVersion,
    GroupConfigList,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigList,
    encode_body,
)

INT_MAX = 2**31 - 1
CREATE = {"topic": "BIG", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
CREATE |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}


@pytest.mark.parametrize("member", ["readQueueNums", "writeQueueNums"])
def test_a_topic_with_more_queues_than_the_limit_is_refused_with_value_limit_and_key(tmp_path, member):
    ctx = context(tmp_path, maxTopicQueueNums=100)
    answer = ask(topic_handlers.handlers(ctx), 17, {**CREATE, member: str(INT_MAX)})
    kind = member[: member.index("Q")]
    assert (answer.code, answer.remark) == (
        29,
        f"topic BIG with {INT_MAX} {kind} queues: maxTopicQueueNums is 100; ask for fewer, or raise it",
    )
    assert "BIG" not in ctx.topics
    assert ctx.limits.refused == {"maxTopicQueueNums": 1}
    assert ask(topic_handlers.handlers(ctx), 17, {**CREATE, member: "100"}).code == 0


@pytest.mark.parametrize("fields", [{"readQueueNums": "-1"}, {"writeQueueNums": "-8"}, {"perm": "-1"}, {"perm": "16"}])
def test_negative_queues_and_unknown_permissions_are_refused(tmp_path, fields):
    ctx = context(tmp_path)
    assert ask(topic_handlers.handlers(ctx), 17, {**CREATE, **fields}).code == 29
    assert "BIG" not in ctx.topics


def test_one_topic_of_a_list_with_too_many_queues_refuses_the_list(tmp_path):
    ctx = context(tmp_path)
    wanted = [TopicConfig(topic_name="A"), TopicConfig(topic_name="B", read_queue_nums=INT_MAX)]
    body = encode_body(TopicConfigList(topic_config_list=wanted))
    assert ask(topic_handlers.handlers(ctx), 18, body=body).code == 29
    assert "A" not in ctx.topics


@pytest.mark.parametrize("queues", [-1, INT_MAX])
def test_the_retry_queues_of_a_group_have_the_same_bound(tmp_path, queues):
    ctx = context(tmp_path)
    handlers = group_handlers.handlers(ctx)
    group = SubscriptionGroupConfig(group_name="NEW", retry_queue_nums=queues)
    assert ask(handlers, 200, body=encode_body(group)).code == 29
    assert ask(handlers, 225, body=encode_body(GroupConfigList(group_config_list=[group]))).code == 29
    assert "NEW" not in ctx.groups


async def test_a_send_creates_a_topic_with_no_more_queues_than_allowed(tmp_path):
    conf = broker_conf(tmp_path, maxTopicQueueNums=3, defaultTopicQueueNums=8)
    async with running_broker(conf) as broker, connected(broker) as client:
        assert (await send(client, b="NEW", d=str(INT_MAX))).code == 0
        assert broker.context.topics.get("NEW").write_queue_nums == 3
        refused = await send(client, b="OTHER", d="-1")
        assert refused.code == 29
        assert "defaultTopicQueueNums" in (refused.remark or "")
        assert "OTHER" not in broker.context.topics


def test_a_master_s_topic_is_adopted_as_it_is_and_its_statistics_are_refused(tmp_path):
    with stored_context(tmp_path) as ctx:
        huge = TopicConfig(topic_name="BIG", read_queue_nums=INT_MAX, write_queue_nums=INT_MAX)
        rows = {**ctx.topics.rows, "BIG": huge}
        ctx.topics.adopt_loaded(TopicsFile(data_version=DataVersion(counter=9), topic_config_table=rows))
        ctx.offsets.commit("G", "BIG", 0, 1, 0)
        stats, resets = stats_handlers.handlers(ctx), reset_handlers.handlers(ctx)
        asked = [
            ask(stats, 202, {"topic": "BIG"}),
            ask(stats, 208, {"consumerGroup": "G", "topic": "BIG"}),
            ask(stats, 303, {"topic": "BIG", "group": "G"}),
            ask(resets, 222, {"topic": "BIG", "group": "G", "timestamp": "0", "isForce": "true"}),
        ]
        expected = f"topic BIG has {INT_MAX} queues, and an answer has at most 65536: lower its queues"
        assert [(answer.code, answer.remark) for answer in asked] == [(1, expected)] * 4
        assert ask(stats, 317).code == 0  # statistics of all groups go on without that topic


async def test_others_have_their_turn_while_many_queues_are_walked():
    turns, others, seen = Turns(), [], []

    async def other():
        while True:
            others.append(len(seen))
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    async for part in turns.slices(3 * QUEUES_PER_TURN):
        seen += part
    beside.cancel()
    assert seen == list(range(3 * QUEUES_PER_TURN))
    assert others == [QUEUES_PER_TURN, 2 * QUEUES_PER_TURN]


async def test_small_topics_share_a_turn():
    turns, passed = Turns(), []
    asyncio.get_running_loop().call_soon(passed.append, 1)
    for _ in range(QUEUES_PER_TURN // 4):
        async for _part in turns.slices(4):
            pass
    assert passed == []
