"""Cleaning up on request, and features that this broker does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.asking import body_of
from tests.broker.offline import ask
from tests.broker.stored import put, stored_context

from twinlog.broker.admin import operation_handlers


def test_operators_chores_are_done(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = operation_handlers.handlers(ctx)
        put(ctx, topic="Gone")
        assert "Gone" in ctx.store.queues.topics()
        put(ctx)
        for code in (306, 316, 329, 905):
            assert ask(handlers, code).code == 0
        assert "Gone" not in ctx.store.queues.topics()
        assert ctx.store.max_offset("T", 0) == 1
        topics = body_of(ask(handlers, 305))["topicList"]
        assert {"SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "rmq_sys_wheel_timer"} <= set(topics)
        assert "T" not in topics


def test_features_that_are_not_there_answer_as_the_real_broker_without_them(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = operation_handlers.handlers(ctx)
        answer = ask(handlers, 1007)
        assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
        assert ask(handlers, 354).body == b'{"checkStatus":2}'
        assert ask(handlers, 355).remark == "export done."
        assert body_of(ask(handlers, 2003))["globalColdReadThreshold"] == 104_857_600
        assert all(ask(handlers, code).code == 1 for code in range(3001, 3011))


@pytest.mark.parametrize("code", [908, 2001, 2002, 2004])
def test_a_request_that_would_change_nothing_is_refused_with_the_reason(tmp_path: Path, code: int):
    with stored_context(tmp_path) as ctx:
        answer = ask(operation_handlers.handlers(ctx), code)
        assert answer.code == 3
        assert answer.remark.startswith(f"request {code} would have no effect: ")
