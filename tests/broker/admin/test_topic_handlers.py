"""Topics and groups are created, changed and deleted by administrators, durably."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from tests.broker.offline import ask, context

from twinlog.broker.admin import group_handlers, topic_handlers
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import Request
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig, encode_body

CREATE = {
    "topic": "NEW",
    "defaultTopic": "TBW102",
    "readQueueNums": "8",
    "writeQueueNums": "6",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@pytest.fixture
def deleted() -> list[str]:
    return []


@pytest.fixture
def ctx(tmp_path, deleted):
    return context(tmp_path, store=SimpleNamespace(delete_topic=deleted.append))


@pytest.fixture
def handlers(ctx):
    return topic_handlers.handlers(ctx) | group_handlers.handlers(ctx)


def create(handlers, **fields: str):
    answer = ask(handlers, 17, {name: value for name, value in (CREATE | fields).items() if value != "absent"})
    return answer.code, answer.remark


def topics_on_disk(ctx) -> dict:
    return json.loads(ctx.topics.file.path.read_text())["topicConfigTable"]


def test_a_created_topic_is_on_disk_and_announced_when_the_answer_leaves(ctx, handlers):
    announced = []
    ctx.topic_listeners.append(announced.append)
    assert create(handlers, order="true") == (0, "not set any response code")
    expected = TopicConfig(topic_name="NEW", read_queue_nums=8, write_queue_nums=6, order=True)
    assert ctx.topics.get("NEW") == expected
    assert topics_on_disk(ctx)["NEW"]["writeQueueNums"] == 6
    assert announced == [("NEW",)]


def test_creating_the_same_topic_again_is_no_change(ctx, handlers):
    create(handlers)
    version, announced = ctx.topics.version, []
    ctx.topic_listeners.append(announced.append)
    assert create(handlers)[0] == 0
    assert ctx.topics.version == version
    assert announced == []


def test_a_topic_may_have_no_queues_to_read_and_a_permission_of_5_x(ctx, handlers):
    assert create(handlers, readQueueNums="0", perm="9")[0] == 0
    assert ctx.topics.get("NEW").perm == 9


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "absent"}, 29, "The specified topic is blank."),
        ({"topic": " "}, 29, "The specified topic is blank."),
        (
            {"topic": "../x"},
            29,
            "The specified topic: ../x, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({"topic": "x" * 128}, 29, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            {"topic": "%RETRY%" + "x" * 249},
            29,
            f"DLQ or Retry topic: %RETRY%{'x' * 249}, and it's longer than topic max length: 255",
        ),
        ({"topic": "/" * 600}, 29, f"The specified topic: {'/' * 512}..., contains illegal"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, 29, "is conflict with system topic."),
        ({"topic": "broker-a"}, 29, "The topic[broker-a] is conflict with system topic."),
        ({"topicFilterType": "X"}, 1, "topicFilterType = [X] value invalid"),
        ({"topicFilterType": "absent"}, 1, "topicFilterType = [None] value invalid"),
        ({"readQueueNums": "many"}, 1, "readQueueNums"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+no.such=1"}, 1, "unsupported key: no.such"),
        ({"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic. key: message.type"),
        ({"attributes": "+message.type=LOUD"}, 1, "value is not in set"),
        ({"attributes": "+reserve.time=-2"}, 1, "value is not in range(-1, 9223372036854775807)"),
        ({"attributes": "+cleanup.policy=COMPACTION"}, 1, "cleanup.policy=COMPACTION would have no effect"),
        ({"attributes": "+reserve.time=3600000"}, 1, "reserve.time=3600000 would have no effect"),
        ({"attributes": "+reserve.time=soon"}, 1, 'For input string: "soon"'),
        ({"attributes": "message.type=FIFO"}, 1, "add/alter attribute format is wrong: message.type"),
        ({"attributes": "+message.type"}, 1, "delete attribute format is wrong: +message.type"),
        ({"attributes": "+message.type=FIFO,+message.type=DELAY"}, 1, "key duplication: +message.type"),
        ({"attributes": "++x=1"}, 1, "kv string format wrong."),
    ],
)
def test_what_cannot_be_a_topic_is_refused_in_javas_words(ctx, handlers, fields, code, remark):
    version = ctx.topics.version
    found, text = create(handlers, **fields)
    assert found == code
    assert remark in text
    assert ctx.topics.version == version


def test_attributes_are_kept_under_plain_keys_and_some_never_change(ctx, handlers):
    assert create(handlers, attributes="+message.type=FIFO,+queue.type=BatchCQ")[0] == 0
    assert ctx.topics.get("NEW").attributes == {"message.type": "FIFO", "queue.type": "BatchCQ"}
    code, remark = create(handlers, attributes="+queue.type=SimpleCQ")
    assert (code, remark) == (1, "attempt to update an unchangeable attribute. key: queue.type")
    assert create(handlers, attributes="-message.type")[0] == 0
    assert ctx.topics.get("NEW").attributes == {"queue.type": "BatchCQ"}
    assert create(handlers, attributes="-message.type") == (1, "attempt to delete a nonexistent key: message.type")


def test_attributes_that_ask_for_what_happens_anyway_are_accepted(ctx, handlers):
    assert create(handlers, attributes="+cleanup.policy=DELETE,+reserve.time=-1")[0] == 0
    assert ctx.topics.get("NEW").attributes == {"cleanup.policy": "DELETE", "reserve.time": "-1"}


def test_attributes_that_came_from_a_java_master_stay_and_may_go(ctx, handlers):
    attributes = {"cleanup.policy": "COMPACTION", "reserve.time": "5"}
    ctx.topics.put("NEW", TopicConfig(topic_name="NEW", attributes=attributes), 1)
    assert create(handlers, writeQueueNums="3")[0] == 0
    assert ctx.topics.get("NEW").attributes == attributes
    assert create(handlers, attributes="-reserve.time")[0] == 0
    assert ctx.topics.get("NEW").attributes == {"cleanup.policy": "COMPACTION"}


def test_a_list_of_topics_is_created_whole_or_not_at_all(ctx, handlers):
    good, bad = TopicConfig(topic_name="A", attributes={"+message.type": "DELAY"}), TopicConfig(topic_name="B C")
    answer = ask(handlers, 18, body=json.dumps({"topicConfigList": [_plain(good), _plain(bad)]}).encode())
    assert answer.code == 29
    assert "A" not in ctx.topics
    answer = ask(handlers, 18, body=json.dumps({"topicConfigList": [_plain(good), {"topicName": "B"}]}).encode())
    assert answer.code == 0
    assert ctx.topics.get("A").attributes == {"message.type": "DELAY"}
    assert set(topics_on_disk(ctx)) >= {"A", "B"}


def _plain(config: TopicConfig) -> dict:
    return json.loads(encode_body(config))


def test_a_topic_is_deleted_with_its_offsets_its_queues_and_its_pop_retries(ctx, handlers, deleted):
    for name in ("%RETRY%G_T", "OTHER"):
        ensure_topic(ctx, name, 1)
    ctx.offsets.commit("G", "T", 0, 5, 1)
    ctx.offsets.commit("G", "OTHER", 0, 5, 1)
    assert ask(handlers, 215, {"topic": "T"}).code == 0
    assert set(ctx.topics.rows) == {"OTHER"}
    assert set(ctx.offsets.rows) == {"OTHER@G"}
    assert deleted == ["T", "%RETRY%G_T"]
    assert "T" not in topics_on_disk(ctx)


@pytest.mark.parametrize(
    ("topic", "code"), [("NEVER_WAS", 0), ("", 29), ("  ", 29), ("SELF_TEST_TOPIC", 29), ("../../etc", 0)]
)
def test_deleting_what_is_not_there_is_fine_and_what_must_stay_is_not(handlers, deleted, topic, code):
    assert ask(handlers, 215, {"topic": topic}).code == code
    assert "../../etc" not in deleted


def test_a_topic_is_shown(handlers):
    answer = ask(handlers, 351, {"topic": "T"})
    assert json.loads(answer.body) == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    answer = ask(handlers, 351, {"topic": "NONE"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: NONE")


def test_a_group_is_created_changed_and_shown(ctx, handlers):
    config = SubscriptionGroupConfig(group_name="NEW", retry_max_times=3, consume_broadcast_enable=False)
    answer = ask(handlers, 200, body=encode_body(config))
    assert (answer.code, answer.remark) == (0, None)
    assert ctx.groups.get("NEW") == config
    assert not ctx.groups.dirty
    assert json.loads(ask(handlers, 352, {"group": "NEW"}).body)["retryMaxTimes"] == 3


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified group is blank."),
        ("a b", "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 121, f"The specified group: {'x' * 121}, is longer than group max length: 120"),
    ],
)
def test_a_group_name_is_checked(ctx, handlers, name, remark):
    answer = ask(handlers, 200, body=encode_body(SubscriptionGroupConfig(group_name=name)))
    assert (answer.code, answer.remark) == (29, remark)
    assert name not in ctx.groups


def test_a_list_of_groups_is_created_whole_or_not_at_all(ctx, handlers):
    body = {"groupConfigList": [{"groupName": "A"}, {"groupName": "B C"}]}
    assert ask(handlers, 225, body=json.dumps(body).encode()).code == 29
    assert "A" not in ctx.groups
    body["groupConfigList"].pop()
    assert ask(handlers, 225, body=json.dumps(body).encode()).code == 0
    assert "A" in ctx.groups


def test_a_group_attribute_is_not_known_yet(handlers):
    config = SubscriptionGroupConfig(group_name="NEW", attributes={"+a": "b"})
    answer = ask(handlers, 200, body=encode_body(config))
    assert (answer.code, answer.remark) == (1, "unsupported key: a")


def test_a_deleted_group_keeps_its_offsets_unless_they_are_to_be_cleaned(ctx, handlers):
    ctx.offsets.commit("G", "T", 0, 5, 1)
    assert ask(handlers, 207, {"groupName": "G"}).code == 0
    assert "G" not in ctx.groups
    assert ctx.offsets.get("G", "T", 0) == 5
    assert ask(handlers, 207, {"groupName": "G", "cleanOffset": "true"}).code == 0
    assert ctx.offsets.get("G", "T", 0) is None


def test_asking_for_a_group_creates_it_unless_its_name_is_impossible(ctx, handlers):
    assert ask(handlers, 352, {"group": "FRESH"}).code == 0
    assert "FRESH" in ctx.groups
    answer = ask(handlers, 352, {"group": "no such"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")


def test_a_topic_is_forbidden_to_a_group_and_allowed_again(ctx, handlers):
    shown = {"group": "G", "topic": "T"}
    answer = ask(handlers, 353, shown)
    assert (answer.code, answer.remark, answer.body) == (0, "", b'{"group":"G","readable":true,"topic":"T"}')
    assert b'"readable":false' in ask(handlers, 353, {**shown, "readable": "false"}).body
    assert not ctx.groups.may_read("G", "T")
    assert not ctx.groups.dirty
    assert b'"readable":true' in ask(handlers, 353, {**shown, "readable": "true"}).body
    assert ctx.groups.may_read("G", "T")


@pytest.mark.parametrize("fields", [{"group": "made-up", "topic": "T"}, {"group": "G", "topic": "NONE"}])
def test_nothing_is_kept_about_groups_and_topics_that_do_not_exist(ctx, handlers, fields):
    assert ask(handlers, 353, {**fields, "readable": "false"}).code == 29
    assert not ctx.groups.forbidden


@pytest.mark.parametrize(
    ("code", "member", "row"),
    [(18, "topicConfigList", '{"topicName":"N%d"}'), (225, "groupConfigList", '{"groupName":"N%d"}')],
    ids=["topics", "groups"],
)
async def test_a_long_list_is_checked_in_turns_with_other_requests_and_stored_at_once(ctx, handlers, code, member, row):
    rows = ",".join(row % number for number in range(5_000))
    request = Request(code, 1, body=f'{{"{member}":[{rows}]}}'.encode())
    table, seen = (ctx.topics if code == 18 else ctx.groups), set()
    storing = asyncio.ensure_future(handlers[code](request))
    before = len(table)
    for _ in range(4):  # a thousand in each
        await asyncio.sleep(0)
        seen.add(len(table))
    assert seen == {before}
    assert (await storing).code == 0 and len(table) == before + 5_000
