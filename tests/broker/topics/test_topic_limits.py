"""Queue counts have a bound wherever a peer can name one, and topics with very many queues do not stop the loop."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
from tests.broker.offline import ask, asked, context
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.broker.stored import stored_context

from twinlog.broker.admin import group_handlers, reset_handlers, topic_handlers
from twinlog.broker.context import BrokerContext
from twinlog.broker.stats import stats_handlers
from twinlog.broker.topics.topic_limits import QUEUES_PER_TURN, Turns
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
        answers = [
            ask(stats, 202, {"topic": "BIG"}),
            ask(stats, 208, {"consumerGroup": "G", "topic": "BIG"}),
            ask(stats, 303, {"topic": "BIG", "group": "G"}),
            ask(resets, 222, {"topic": "BIG", "group": "G", "timestamp": "0", "isForce": "true"}),
        ]
        expected = f"topic BIG has {INT_MAX} queues, and an answer has at most 65536: lower its queues"
        assert [(answer.code, answer.remark) for answer in answers] == [(1, expected)] * 4
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


async def test_a_crowd_of_statistics_takes_turns_with_others(tmp_path, monkeypatch):
    with stored_context(tmp_path) as ctx:
        ctx.topics.put("BIG", TopicConfig(topic_name="BIG", read_queue_nums=600, write_queue_nums=600), 0)
        handlers, walked, seen = stats_handlers.handlers(ctx), [], []
        queue = BrokerContext.queue

        def counted(*arguments):
            walked.append(1)
            return queue(*arguments)

        async def other():
            while True:
                seen.append(len(walked))
                await asyncio.sleep(0)

        monkeypatch.setattr(BrokerContext, "queue", counted)
        questions = [(202, {"topic": "BIG"}), (208, {"consumerGroup": "G", "topic": "BIG"})]
        questions.append((303, {"topic": "BIG", "group": "G"}))
        beside = asyncio.create_task(other())
        crowd = [handlers[code](asked(code, fields)) for code, fields in questions * 5]
        assert {answer.code for answer in await asyncio.gather(*crowd)} == {0}
        beside.cancel()
        assert len(walked) == 15 * 600
        assert max(after - before for before, after in itertools.pairwise(seen)) <= QUEUES_PER_TURN


async def test_large_statistics_are_encoded_beside_the_loop(tmp_path, monkeypatch):
    with stored_context(tmp_path) as ctx:
        threads = []

        def encode(body):
            threads.append(threading.current_thread() is threading.main_thread())
            return encode_body(body)

        monkeypatch.setattr(stats_handlers, "encode_body", encode)
        ctx.topics.put("BIG", TopicConfig(topic_name="BIG", read_queue_nums=5_000, write_queue_nums=5_000), 0)
        ctx.offsets.commit("G", "BIG", 0, 0, 0)
        handlers = stats_handlers.handlers(ctx)
        for code in (202, 208, 303, 317):
            fields = {"topic": "BIG", "group": "G", "consumerGroup": "G"}
            assert (await handlers[code](asked(code, fields))).code == 0
        assert threads == [False] * 4
        await handlers[202](asked(202, {"topic": "T"}))
        assert threads[4:] == [True]


def test_a_topic_that_is_named_many_times_is_walked_once(tmp_path, monkeypatch):
    with stored_context(tmp_path) as ctx:
        walked = []
        queue = BrokerContext.queue
        monkeypatch.setattr(BrokerContext, "queue", lambda *args: walked.append(1) or queue(*args))
        answer = ask(stats_handlers.handlers(ctx), 208, {"consumerGroup": "G", "topicList": "T;" * 1_000})
        assert answer.code == 0
        assert len(walked) == ctx.topics.get("T").read_queue_nums


async def test_small_topics_share_a_turn():
    turns, passed = Turns(), []
    asyncio.get_running_loop().call_soon(passed.append, 1)
    for _ in range(QUEUES_PER_TURN // 4):
        async for _part in turns.slices(4):
            pass
    assert passed == []
