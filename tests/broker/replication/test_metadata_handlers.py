"""What a replica, Java's or ours, gets when it asks its master for metadata."""

import asyncio
import json
import threading

import pytest
from tests.broker.offline import ask, asked, context, golden
from tests.metadata.following import adopt_answer

from twinlog.broker.replication import metadata_handlers
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.metadata.groups import GroupTable
from twinlog.metadata.offsets import OffsetTable
from twinlog.metadata.topics import TopicTable
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, OFFSETS, TOPICS
from twinlog.wire.bodies import MessageRequestMode, SubscriptionGroupConfig, TopicConfig, encode_body
from twinlog.wire.java_json.fastjson import loads


class Timer:
    def checkpoint(self) -> bytes:
        return golden("wire-timer-checkpoint-resp").body or b""

    def metrics(self) -> bytes:
        return b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":5},"timingCount":{}}'


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path)


@pytest.fixture
def handlers(ctx):
    return metadata_handlers.handlers(ctx, Timer)


@pytest.mark.parametrize(
    "name",
    [
        "all-topic-config",
        "all-consumer-offset",
        "all-delay-offset",
        "all-subscription-group",
        "message-request-mode",
        "timer-checkpoint",
        "timer-metrics",
    ],
)
def test_a_real_replicas_question_gets_an_answer_of_javas_shape(ctx, handlers, name):
    answer, expected = ask(handlers, golden(f"wire-{name}-req")), golden(f"wire-{name}-resp")
    assert (answer.code, answer.remark) == (0, None)
    if name == "timer-checkpoint":
        assert answer.body == expected.body
    else:
        assert loads(answer.body).keys() == loads(expected.body).keys()


def test_the_bodies_java_sent_come_out_of_our_tables_with_the_same_content(ctx, handlers):
    for name, table, kind, code in (
        ("all-topic-config", ctx.topics, TOPICS, 21),
        ("all-subscription-group", ctx.groups, GROUPS, 201),
        ("all-consumer-offset", ctx.offsets, OFFSETS, 43),
        ("all-delay-offset", ctx.delay_offsets, DELAY_OFFSETS, 45),
    ):
        java = golden(f"wire-{name}-resp").body
        adopt_answer(table, kind, java)
        ours, theirs = json.loads(ask(handlers, code).body), loads(java)
        for body in (ours, theirs):
            body.pop("mappingDataVersion", None)
            body["groupTopicMap"] = {g: sorted(t) for g, t in body.get("groupTopicMap", {}).items()}
        assert ours == theirs


def test_a_5_5_0_replica_gets_offsets_it_can_read(ctx, handlers):
    """Its JSON library stops at bare keys in `pullOffsetTable`, a member it does not even want."""
    ctx.offsets.commit("G", "T", 0, 5, 1)
    ctx.offsets.commit_pull("G", "T", 0, 9)
    body = ask(handlers, 43).body
    assert json.loads(body)["offsetTable"] == {"T@G": {"0": 5}}  # standard JSON throughout
    assert b"pullOffsetTable" not in body


@pytest.mark.parametrize(
    ("code", "table", "total"), [(21, "topics", "totalTopicNum"), (201, "groups", "totalGroupNum")]
)
def test_a_request_without_pages_gets_everything_and_the_total(ctx, handlers, code, table, total):
    _fill(ctx, 5_000)
    answer = ask(handlers, code)
    assert answer.fields == {total: str(len(getattr(ctx, table)))}
    follower, kind = (TopicTable(None, 0), TOPICS) if code == 21 else (GroupTable(None, 0), GROUPS)
    adopt_answer(follower, kind, answer.body)
    assert dict(follower.rows) == dict(getattr(ctx, table).rows)


@pytest.mark.parametrize(
    ("code", "table", "start", "count", "member"),
    [
        (21, "topics", "topicSeq", "maxTopicNum", "topicConfigTable"),
        (201, "groups", "groupSeq", "maxGroupNum", "subscriptionGroupTable"),
    ],
)
def test_pages_add_up_to_the_table(ctx, handlers, code, table, start, count, member):
    _fill(ctx, 4_500)
    rows: dict = {}
    version = ""
    while True:
        fields = {start: str(len(rows)), count: "2000", "dataVersion": version}
        answer = ask(handlers, code, fields)
        page = json.loads(answer.body)
        assert len(page[member]) <= 2_000
        rows |= page[member]
        version = json.dumps(page["dataVersion"])
        if len(rows) >= len(getattr(ctx, table)):
            break
    assert set(rows) == set(getattr(ctx, table).rows)


def test_a_change_between_two_pages_starts_the_paging_anew(ctx, handlers):
    _fill(ctx, 10)
    first = json.loads(ask(handlers, 21, {"topicSeq": "0", "maxTopicNum": "4", "dataVersion": ""}).body)
    ensure_topic(ctx, "AAA", 1)
    fields = {"topicSeq": "4", "maxTopicNum": "4", "dataVersion": json.dumps(first["dataVersion"])}
    page = json.loads(ask(handlers, 21, fields).body)["topicConfigTable"]
    assert next(iter(page)) == "AAA"


@pytest.mark.parametrize(
    ("code", "table", "start", "total", "member", "row"),
    [
        (21, "topics", "topicSeq", "totalTopicNum", "topicConfigTable", TopicConfig(topic_name="AAA")),
        (201, "groups", "groupSeq", "totalGroupNum", "subscriptionGroupTable", SubscriptionGroupConfig("AAA")),
    ],
)
async def test_a_change_while_a_page_waits_for_its_turn_starts_the_paging_anew(
    ctx, handlers, code, table, start, total, member, row
):
    _fill(ctx, 10)
    rows, gate = getattr(ctx, table), threading.Event()
    held = json.dumps({"stateVersion": 0, "timestamp": rows.version.timestamp, "counter": rows.version.counter})
    before = asyncio.create_task(ctx.table_work.in_order(table, gate.wait, 5))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(handlers[code](asked(code, {start: "4", "dataVersion": held})))
    await asyncio.sleep(0)
    rows.put("AAA", row, 3)
    gate.set()
    answer, _ = await waiting, await before
    page = json.loads(answer.body)
    assert page["dataVersion"]["counter"] == rows.version.counter
    assert next(iter(page[member])) == "AAA"  # a new version comes with the first rows
    assert answer.fields == {total: str(len(rows))}


async def test_two_replicas_with_different_versions_do_not_share_a_page(ctx, handlers):
    _fill(ctx, 10)
    version = ctx.topics.version
    current = json.dumps({"stateVersion": 0, "timestamp": version.timestamp, "counter": version.counter})
    ask_for = [{"topicSeq": "4", "dataVersion": current}, {"topicSeq": "4", "dataVersion": ""}]
    follows, starts = await asyncio.gather(*(handlers[21](asked(21, fields)) for fields in ask_for))
    assert len(json.loads(starts.body)["topicConfigTable"]) == len(ctx.topics)
    assert len(json.loads(follows.body)["topicConfigTable"]) == len(ctx.topics) - 4


@pytest.mark.parametrize(
    "fields",
    [
        {"topicSeq": "-5"},
        {"topicSeq": "x"},
        {"maxTopicNum": "-1"},
        {"dataVersion": "{"},
        {"dataVersion": "[]"},
        {"topicSeq": "999999999999999999999"},
        {"dataVersion": "{" * 9_000},
    ],
)
def test_nonsense_in_a_page_request_is_answered_with_some_page(handlers, fields):
    assert ask(handlers, 21, fields).code == 0


def test_a_forbidden_topic_reaches_the_replica(ctx, handlers):
    ctx.groups.set_readable("G", "T", False, 1)
    follower = GroupTable(None, 0)
    adopt_answer(follower, GROUPS, ask(handlers, 201).body)
    assert not follower.may_read("G", "T")


def test_offsets_with_bare_keys_of_a_java_master_and_ours_are_the_same_to_a_replica(ctx, handlers):
    ctx.offsets.commit("G", "T", 3, 5, 1)
    ours, java = OffsetTable(None, 0), OffsetTable(None, 0)
    adopt_answer(ours, OFFSETS, ask(handlers, 43).body)
    adopt_answer(java, OFFSETS, b'{"offsetTable":{"T@G":{3:5}}}')
    assert dict(ours.rows) == dict(java.rows)


def test_without_a_timer_the_answer_is_javas_error(ctx):
    handlers = metadata_handlers.handlers(ctx)
    assert (ask(handlers, 60).code, ask(handlers, 60).remark) == (1, "The checkpoint is null")
    assert (ask(handlers, 61).code, ask(handlers, 61).remark) == (1, "The timer message store is null")


def test_a_foreign_store_without_delay_offsets_is_named_as_the_reason(tmp_path):
    answer = ask(metadata_handlers.handlers(context(tmp_path, store=object())), 45)
    assert (answer.code, answer.remark) == (1, "Delay offset not supported in this messagetore")


def set_mode(handlers, topic: str = "T", group: str = "G", mode: str = "PULL"):
    body = encode_body(MessageRequestMode(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=2))
    answer = ask(handlers, 401, body=body)
    return answer.code, answer.remark


def test_a_request_mode_is_set_and_shown(ctx, handlers):
    assert set_mode(handlers) == (0, None)
    assert json.loads(ask(handlers, 402).body)["messageRequestModeMap"]["T"]["G"]["popShareQueueNum"] == 2
    assert not ctx.request_modes.dirty
    assert set_mode(handlers, group="NEW") == (0, None)
    assert "NEW" in ctx.groups  # as in Java, where groups create themselves


@pytest.mark.parametrize(
    ("asked", "code", "remark"),
    [
        ({"topic": "%RETRY%G"}, 16, "retry topic is not allowed to set mode"),
        ({"topic": "NONE"}, 17, "topic[NONE] not exist"),
        ({"topic": "NONE", "mode": "POP"}, 17, "topic[NONE] not exist"),
        ({"group": "no such"}, 26, "subscription group does not exist"),
        ({"mode": "PUSH"}, 1, "mode 'PUSH' is neither PULL nor POP; set one of them"),
        ({"mode": "POP", "group": "NEW"}, 29, "mode POP would have no effect: consumers of this broker pull; set PULL"),
    ],
)
def test_a_request_mode_without_effect_is_refused(ctx, handlers, asked, code, remark):
    assert set_mode(handlers, **asked) == (code, remark)
    assert not ctx.request_modes.rows
    assert "NEW" not in ctx.groups


def test_a_request_mode_needs_a_body(handlers):
    assert ask(handlers, 401).code == 1


def _fill(ctx, count: int) -> None:
    names = [f"N{n}" for n in range(count)]
    ctx.topics.put_all({name: TopicConfig(topic_name=name) for name in names}, 2)
    ctx.groups.put_all({name: SubscriptionGroupConfig(group_name=name) for name in names}, 2)
