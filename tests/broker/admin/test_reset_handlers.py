"""Offsets of groups are reset and copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.asking import T0, Consumer, body_of, online, shape
from tests.broker.offline import Clock, ask, golden
from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.admin import reset_handlers
from twinlog.wire.java_json.fastjson import loads


def test_a_group_is_moved_to_a_time(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        for _ in range(3):
            put(ctx)
            clock.now_ms += 1_000
        fields = {"topic": "T", "group": "G", "timestamp": str(NOW + 1_000), "isForce": "true"}
        answer = ask(reset_handlers.handlers(ctx), 222, fields)
        assert body_of(answer)["offsetTable"][T0] == 1
        assert len(body_of(answer)["offsetTable"]) == 4
        assert shape(loads(answer.body)) == shape(loads(golden("wire-reset-offset-resp").body))
        assert ctx.offsets.get("G", "T", 0) == 1 and ctx.offsets.reset_pending("G", "T", 0)
        answer = ask(reset_handlers.handlers(ctx), 222, {**fields, "timestamp": "-1", "queueId": "0"})
        assert body_of(answer)["offsetTable"] == {T0: 3}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "X"}, 17, "Topic X does not exist"),
        ({"group": "X"}, 26, "Group X does not exist"),
        ({"queueId": "0", "offset": "9"}, 1, "Target offset 9 not in consume queue range [0-1]"),
        ({"queueId": "0", "offset": "2"}, 0, None),
    ],
)
def test_a_reset_that_cannot_be_is_refused(tmp_path: Path, fields, code, remark):
    with stored_context(tmp_path) as ctx:
        put(ctx)
        answer = ask(reset_handlers.handlers(ctx), 222, {"topic": "T", "group": "G", "timestamp": "0", **fields})
        assert (answer.code, answer.remark) == (code, remark)


def test_with_resets_at_the_clients_each_of_them_gets_the_offsets(tmp_path: Path):
    with stored_context(tmp_path, useServerSideResetOffset=False) as ctx:
        put(ctx)
        fields = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
        for queue_id in range(4):
            ctx.offsets.commit("G", "T", queue_id, 1, NOW)
        answer = ask(reset_handlers.handlers(ctx), 222, fields)
        assert answer.code == 206
        assert answer.remark == "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 0"
        consumer = Consumer()
        online(ctx, consumer)
        assert body_of(ask(reset_handlers.handlers(ctx), 222, fields))["offsetTable"][T0] == 0
        assert consumer.sent[-1][0] == 220


def test_a_replica_does_not_reset(tmp_path: Path):
    with stored_context(tmp_path, brokerRole="SLAVE", brokerId=1) as ctx:
        answer = ask(reset_handlers.handlers(ctx), 222, {"topic": "T", "group": "G", "timestamp": "0"})
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


def test_offsets_are_copied_from_group_to_group(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        ctx.offsets.commit("G", "T", 1, 7, NOW)
        assert ask(reset_handlers.handlers(ctx), 314, {"srcGroup": "G", "destGroup": "H", "offline": "true"}).code == 0
        assert ctx.offsets.get("H", "T", 1) == 7
