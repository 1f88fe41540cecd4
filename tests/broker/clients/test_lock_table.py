"""One client per queue and group, for a minute after it was last heard of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.offline import ask, context, golden

from twinlog.broker.clients import lock_handlers
from twinlog.broker.clients.lock_table import LOCK_MS_MAX, LockTable
from twinlog.wire.bodies import LockBatchRequest, MessageQueue, encode_body
from twinlog.wire.java_json.fastjson import loads

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def test_a_queue_has_one_holder_per_group():
    locks = LockTable()
    assert locks.lock("G", "one", QUEUES[:2], 0) == QUEUES[:2]
    assert locks.lock("G", "two", QUEUES, 1) == QUEUES[2:]
    assert locks.lock("H", "two", QUEUES, 1) == QUEUES


def test_a_lock_that_is_not_renewed_falls_to_the_next_who_asks():
    locks = LockTable()
    locks.lock("G", "one", QUEUES[:1], 0)
    locks.lock("G", "one", QUEUES[:1], 30_000)
    assert locks.lock("G", "two", QUEUES[:1], 30_000 + LOCK_MS_MAX) == []
    assert locks.lock("G", "two", QUEUES[:1], 30_001 + LOCK_MS_MAX) == QUEUES[:1]


def test_only_the_holder_unlocks():
    locks = LockTable()
    locks.lock("G", "one", QUEUES, 0)
    locks.unlock("G", "two", QUEUES)
    assert locks.lock("G", "two", QUEUES, 1) == []
    locks.unlock("G", "one", QUEUES)
    assert locks.lock("G", "two", QUEUES, 2) == QUEUES


def test_a_group_consumes_in_order_while_any_lock_lives():
    locks = LockTable()
    assert not locks.holds_any("G", 0)
    locks.lock("G", "one", QUEUES[:1], 0)
    assert locks.holds_any("G", LOCK_MS_MAX)
    assert not locks.holds_any("G", LOCK_MS_MAX + 1)
    locks.expire(LOCK_MS_MAX + 1)
    assert locks.lock("G", "two", [], 0) == []


def test_without_room_for_more_locks_a_free_queue_is_not_given():
    locks = LockTable(locks_max=2)
    assert locks.lock("G", "one", QUEUES, 0) == QUEUES[:2]
    assert locks.lock("H", "two", QUEUES, 0) == [] and locks.lock("G", "one", QUEUES, 1) == QUEUES[:2]
    locks.unlock("G", "one", QUEUES[:1])
    assert locks.lock("H", "two", QUEUES, 2) == QUEUES[:1]
    locks.expire(LOCK_MS_MAX + 2)
    assert locks.lock("H", "three", QUEUES, LOCK_MS_MAX + 4) == QUEUES[:2]


def test_a_request_locks_a_limited_number_of_queues(tmp_path):
    ctx = context(tmp_path)
    handlers = lock_handlers.handlers(ctx)
    for code in (41, 42):
        for count, expected in ((16_384, 0), (16_385, 29)):
            queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
            body = encode_body(LockBatchRequest(consumer_group="G", client_id="c", mq_set=queues))
            answer = ask(handlers, code, body=body)
            assert answer.code == expected, answer
    assert "16385 queues in one request" in answer.remark


def test_one_group_does_not_take_the_room_of_others():
    locks = LockTable(locks_max=4, group_locks_max=2)
    assert locks.lock("G", "one", QUEUES, 0) == QUEUES[:2]
    assert locks.lock("H", "one", QUEUES, 0) == QUEUES[:2]
    locks.unlock("G", "one", QUEUES[:1])
    assert locks.lock("G", "one", QUEUES[1:], 0) == QUEUES[1:]


@pytest.mark.parametrize("code", [41, 42])
@pytest.mark.parametrize(
    ("group", "client_id", "topic", "broker", "remark"),
    [
        ("G", "x" * 1_025, "T", "b", f"a client id of 1025 characters ({'x' * 40}...): maxClientIdLength is 1024; "),
        ("g" * 256, "c", "T", "b", f"a group name of 256 characters ({'g' * 40}...), at most 255 are taken"),
        ("G", "c", "t" * 256, "b", f"a topic name of 256 characters ({'t' * 40}...), at most 255 are taken"),
        ("G", "c", "T", "b" * 256, f"a broker name of 256 characters ({'b' * 40}...), at most 255 are taken"),
    ],
)
def test_names_that_are_too_long_lock_nothing(tmp_path, code, group, client_id, topic, broker, remark):
    ctx = context(tmp_path)
    body = LockBatchRequest(consumer_group=group, client_id=client_id, mq_set=[MessageQueue(topic, broker, 0)])
    answer = ask(lock_handlers.handlers(ctx), code, body=encode_body(body))
    assert answer.code == 29
    assert answer.remark.startswith(remark)
    assert not ctx.locks.holds_any(group, ctx.clock_ms())


def test_an_unknown_group_and_topic_of_the_longest_names_are_locked_as_in_java(tmp_path):
    queue = MessageQueue("%RETRY%" + "t" * 248, "b" * 255, 0)
    body = LockBatchRequest(consumer_group="g" * 255, client_id="c" * 1_024, mq_set=[queue])
    answer = ask(lock_handlers.handlers(context(tmp_path)), 41, body=encode_body(body))
    assert (answer.code, loads(answer.body)["lockOKMQSet"][0]["queueId"]) == (0, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 40_000)), max_size=30)
)
def test_two_clients_never_hold_the_same_queue(steps):
    locks, holders, now_ms = LockTable(), {}, 0
    for take, client_id, queue_id, passed_ms in steps:
        now_ms += passed_ms
        queue = QUEUES[queue_id]
        holder, since_ms = holders.get(queue, (None, 0))
        if not take:
            locks.unlock("G", client_id, [queue])
            if holder == client_id:
                del holders[queue]
        elif locks.lock("G", client_id, [queue], now_ms):
            assert holder in (None, client_id) or now_ms - since_ms > LOCK_MS_MAX
            holders[queue] = (client_id, now_ms)
        else:
            assert holder not in (None, client_id)
            assert now_ms - since_ms <= LOCK_MS_MAX


def test_a_real_client_locks_and_unlocks(tmp_path):
    handlers = lock_handlers.handlers(context(tmp_path))
    answer, expected = ask(handlers, golden("wire-lock-batch-req")), golden("wire-lock-batch-resp")
    assert (answer.code, answer.fields, answer.body) == (0, None, expected.body)
    other = LockBatchRequest(consumer_group="CGO", client_id="other", mq_set=[MessageQueue("T1", "broker-a", 1)])
    assert ask(handlers, 41, body=encode_body(other)).body == b'{"lockOKMQSet":[]}'
    unlock = golden("wire-lock-batch-req")
    unlock.code = 42
    answer = ask(handlers, unlock)
    assert (answer.code, answer.body) == (0, None)
    assert ask(handlers, 41, body=encode_body(other)).body == expected.body
