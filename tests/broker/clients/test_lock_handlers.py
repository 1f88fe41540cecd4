"""Requests that lock and unlock queues."""

import pytest
from tests.broker.offline import ask, context, golden

from twinlog.broker.clients import lock_handlers
from twinlog.wire.bodies import LockBatchRequest, MessageQueue, encode_body
from twinlog.wire.java_json.fastjson import loads

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


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


@pytest.mark.parametrize("code", [41, 42])
@pytest.mark.parametrize(
    ("group", "client_id", "topic", "broker", "remark"),
    [
        ("G", "x" * 1_025, "T", "b", f"a client id of 1025 characters ({'x' * 40}...): maxClientIdLength is 1024; "),
        ("g" * 256, "c", "T", "b", f"a group name of 256 characters ({'g' * 40}...), at most 255 are allowed"),
        ("G", "c", "t" * 256, "b", f"a topic name of 256 characters ({'t' * 40}...), at most 255 are allowed"),
        ("G", "c", "T", "b" * 256, f"a broker name of 256 characters ({'b' * 40}...), at most 255 are allowed"),
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
