"""Whatever an admin tool or a client sends, each handler answers with a code and words, and stores nothing broken."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.offline import Wire
from tests.broker.stored import put, stored_context

from twinlog.broker.admin import config_handlers, operation_handlers, reset_handlers
from twinlog.broker.clients import connection_handlers
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.replication import metadata_handlers
from twinlog.broker.sends import reply, send_back
from twinlog.broker.stats import runtime_info, stats_handlers
from twinlog.net.connection import Request
from twinlog.net.error_answers import answer_for_error
from twinlog.wire.command import Command

NAMES = """topic group consumerGroup producerGroup queueId offset delayLevel maxReconsumeTimes index count timestamp
isForce commitLogOffset tranStateTableOffset commitOrRollback msgId clientId statsName statsKey srcGroup destGroup
offline recallHandle compareGroup filterGroups topicList isOrder clientAddr fromTransactionCheck
a b c d e f g h i j k l m""".split()
WORDS = ["", "T", "G", "PG", "0", "1", "-1", "8", "12", "true", "false", "9" * 30, "../x", "a@b", "TOPIC_PUT_NUMS"]
TEXTS = [b"maxMessageSize=1", b"x=\\u12", b"brokerPermission=9", b"{}"]
VALUES = st.one_of(st.sampled_from(WORDS), st.integers(-(2**70), 2**70).map(str), st.text(max_size=12))
FIELDS = st.none() | st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12)
BODIES = st.none() | st.binary(max_size=40) | st.sampled_from(TEXTS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    root: Path = tmp_path_factory.mktemp("fuzz")
    with stored_context(root, recallMessageEnable=True) as ctx:
        deferred = DeferredServices(ctx)
        handlers = {
            **deferred.handlers(),
            **metadata_handlers.handlers(ctx, deferred.timers_in_use),
            **runtime_info.handlers(ctx, deferred.timers),
            **{
                code: handler
                for module in (
                    config_handlers,
                    connection_handlers,
                    operation_handlers,
                    reply,
                    reset_handlers,
                    send_back,
                    stats_handlers,
                )
                for code, handler in module.handlers(ctx).items()
            },
        }
        put(ctx, PGROUP="PG")
        with asyncio.Runner() as runner:
            yield ctx, handlers, runner


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_request_surprises_a_handler(broker, caplog, data):
    ctx, handlers, runner = broker
    code = data.draw(st.sampled_from(sorted(handlers)))
    wire = Wire()
    wire.peer = ("127.0.0.1", 4711)
    request = Request(code, 7, fields=data.draw(FIELDS), body=data.draw(BODIES), connection=wire)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        try:
            answer = handlers[code](request)
            if hasattr(answer, "send"):
                answer = runner.run(_finished(answer))
        except Exception as error:
            answer = answer_for_error(request, error)
    assert [record.getMessage() for record in caplog.records if record.getMessage() == "a handler failed"] == []
    assert answer is None or isinstance(answer, Command)
    physical_offset = ctx.store.log_start
    while physical_offset < ctx.store.log_end:
        message = ctx.store.message_at(physical_offset)
        assert message is not None, "every record of the log is whole"
        physical_offset += message.store_size


async def _finished(awaitable):
    """What it answers; nobody is online to be asked, so that it comes soon."""
    async with asyncio.timeout(5):
        return await awaitable
