"""Consumer offsets and queue bounds on the wire, over a real store."""

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest
from tests.broker.offline import ask, context, golden
from tests.broker.running import broker_conf

from twinlog.broker.admin import reset_handlers
from twinlog.broker.clients import offset_handlers
from twinlog.broker.replication import replication_handlers
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.wire.bodies import TopicConfig

TIMES = [1_000, 2_000, 3_000]


@pytest.fixture
def ctx(tmp_path):
    times = iter(TIMES)
    conf = broker_conf(tmp_path)
    with MessageStore.open(conf.store, clock_ms=lambda: next(times, 9_000)) as store:
        for _ in TIMES:
            store.append(Draft(topic="T", queue_id=1, body=b"x"))
        store.dispatch_pending()
        yield context(tmp_path, store=store)


@pytest.fixture
def handlers(ctx):
    return offset_handlers.handlers(ctx)


def query(handlers, queue_id: int = 1, group: str = "G", **more: str):
    fields = {"consumerGroup": group, "topic": "T", "queueId": str(queue_id), **more}
    answer = ask(handlers, 14, fields)
    return answer.code, answer.remark, answer.fields


def commit(handlers, offset: int | str = 2, **fields: str):
    asked = {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": str(offset), **fields}
    answer = ask(handlers, 15, {name: value for name, value in asked.items() if value})
    return answer.code, answer.remark, answer.fields


def test_a_committed_offset_is_answered_and_may_go_back(handlers):
    assert commit(handlers, 2) == (0, None, {})
    assert query(handlers) == (0, None, {"offset": "2"})
    assert commit(handlers, 1) == (0, None, {})
    assert query(handlers) == (0, None, {"offset": "1"})


def test_a_new_group_starts_at_zero_where_message_zero_is_recent(handlers):
    assert query(handlers, group="NEW") == (0, None, {"offset": "0"})
    request, expected = golden("wire-query-consumer-offset-req"), golden("wire-query-consumer-offset-resp")
    request.fields.update(topic="T", queueId="1")
    answer = ask(handlers, request)
    assert (answer.code, answer.remark, answer.fields) == (expected.code, expected.remark, expected.fields)


def test_a_new_group_finds_nothing_in_an_empty_queue_or_when_it_asks_so(handlers):
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    assert query(handlers, queue_id=3) == (22, remark, {})
    remark = "Not found, do not set to zero, maybe this group boot first"
    assert query(handlers, group="NEW", setZeroIfNotFound="false") == (22, remark, {})


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"consumerGroup": "NOBODY"}, 26, "Group NOBODY not exist!"),
        ({"consumerGroup": "NOBODY", "topic": "NOTHING"}, 26, "Group NOBODY not exist!"),
        ({"consumerGroup": "NOBODY", "topic": "%RETRY%NOBODY"}, 26, "Group NOBODY not exist!"),
        ({"consumerGroup": "NOBODY", "queueId": ""}, 26, "Group NOBODY not exist!"),
        ({"topic": "NOTHING"}, 17, "Topic NOTHING not exist!"),
        ({"queueId": ""}, 29, "QueueId is null, topic is T"),
        ({"commitOffset": ""}, 29, "Offset is null, topic is T"),
        ({"commitOffset": "x"}, 29, "Offset is null, topic is T"),
    ],
)
def test_a_commit_that_names_nothing_real_is_refused(ctx, handlers, fields, code, remark):
    assert commit(handlers, **fields) == (code, remark, {})
    assert not ctx.offsets.rows


@pytest.mark.parametrize("auto_created", [True, False])
def test_a_commit_creates_no_group_even_where_groups_create_themselves(ctx, handlers, auto_created):
    broker = dataclasses.replace(ctx.conf.broker, groups_auto_created=auto_created)
    ctx.conf = dataclasses.replace(ctx.conf, broker=broker)
    assert commit(handlers, consumerGroup="NOBODY") == (26, "Group NOBODY not exist!", {})
    assert "NOBODY" not in ctx.groups


def test_commits_are_ignored_while_a_reset_is_pending(ctx, handlers):
    ctx.offsets.reset("G", "T", 1, 1, 5)
    assert commit(handlers, 3) == (0, "Offset has been previously reset", {})
    assert query(handlers) == (0, None, {"offset": "1"})
    ctx.offsets.take_reset("G", "T", 1)
    assert commit(handlers, 3) == (0, None, {})
    assert query(handlers) == (0, None, {"offset": "3"})


@pytest.mark.parametrize(
    ("code", "topic", "queue_id", "fields", "remark"),
    [
        (30, "T", "1", {"offset": "3"}, None),
        (30, "T", "99", {"offset": "0"}, None),
        (30, "NOTHING", "0", {"offset": "0"}, None),
        (31, "T", "1", {"offset": "0"}, ""),
        (31, "NOTHING", "0", {"offset": "0"}, ""),
        (32, "T", "1", {"timestamp": "1000"}, None),
        (32, "NOTHING", "0", {"timestamp": "-1"}, None),
        (32, "T", "x", {"timestamp": "-1"}, None),
    ],
)
def test_bounds_of_a_queue_and_of_one_that_does_not_exist(handlers, code, topic, queue_id, fields, remark):
    answer = ask(handlers, code, {"topic": topic, "queueId": queue_id})
    assert (answer.code, answer.remark, answer.fields) == (0, remark, fields)


@pytest.mark.parametrize(
    ("timestamp", "boundary", "offset"),
    [(0, None, 0), (2_000, None, 1), (2_001, "LOWER", 2), (9_999, None, 3), (2_001, "UPPER", 1), (9_999, "UPPER", 2)],
)
def test_an_offset_is_found_by_time(handlers, timestamp, boundary, offset):
    fields = {"topic": "T", "queueId": "1", "timestamp": str(timestamp)}
    answer = ask(handlers, 29, {**fields, **({"boundaryType": boundary} if boundary else {})})
    assert (answer.code, answer.fields) == (0, {"offset": str(offset)})


def test_the_time_of_an_unknown_topic_is_offset_zero(handlers):
    assert ask(handlers, 29, {"topic": "NOTHING", "queueId": "0", "timestamp": "5"}).fields == {"offset": "0"}


@pytest.mark.parametrize("queue_id", [-1, 4, 300_000, 2**31 - 1])
def test_an_offset_of_a_queue_that_does_not_exist_is_not_kept(ctx, handlers, queue_id):
    answer = commit(handlers, queueId=str(queue_id))
    assert answer == (29, f"topic T has no queue {queue_id}; commit to one of its queues", {})
    assert commit(handlers, topic="NONE")[0] == 17
    assert not ctx.offsets.rows


def test_a_queue_with_messages_keeps_its_offsets_after_the_topic_shrank(ctx, handlers):
    ctx.topics.put("T", TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), 0)
    assert commit(handlers)[0] == 0
    assert commit(handlers, queueId="2")[0] == 29


def test_a_reset_names_a_queue_that_exists(ctx):
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "queueId": "300000", "offset": "-1"}
    assert ask(reset_handlers.handlers(ctx), 222, fields).code == 29
    assert not ctx.offsets.rows


def test_a_replica_carries_back_only_what_the_master_knows(ctx):
    handlers = replication_handlers.ReplicationHandlers(ctx, SimpleNamespace())
    rows = {"T@G": {0: 5, 9: 5}, "T@made-up": {0: 5}, "NONE@G": {0: 5}, "T@G@broadcast": {1: 7}, "nonsense": {0: 1}}
    answer = ask({1: handlers.offsets_carried_back}, 1, body=msgspec.json.encode(rows))
    assert (answer.code, answer.fields) == (0, {"raised": "2"})
    assert ctx.offsets.rows == {"T@G": {0: 5}, "T@G@broadcast": {1: 7}}


def test_offsets_are_cloned_to_a_group_that_exists_or_may_be_created(tmp_path, ctx):
    ctx.offsets.commit("G", "T", 1, 5, 0)
    fields = {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}
    ctx.replace_conf(broker_conf(tmp_path, maxAutoCreatedGroups=1))
    assert ask(reset_handlers.handlers(ctx), 314, fields).code == 0
    assert ctx.offsets.of("H", "T") == {1: 5}
    assert ask(reset_handlers.handlers(ctx), 314, {**fields, "destGroup": "made-up"}).code == 26
    ctx.replace_conf(broker_conf(tmp_path, autoCreateSubscriptionGroup=False))
    assert ask(reset_handlers.handlers(ctx), 314, {**fields, "destGroup": "made-up"}).code == 26
    assert set(ctx.offsets.rows) == {"T@G", "T@H"}
