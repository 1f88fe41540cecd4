"""The fast path stores and answers exactly as the plain one."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.contexts import open_context, wired
from tests.broker.running import SEND_FIELDS

from twinlog.broker.sends import send
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import ConnectionOptions
from twinlog.wire.command import Command, encode_command
from twinlog.wire.message import decode_message

UNIQ = "UNIQ_KEY\x017F0000011234567890ABCDEF00000001\x02"
pieces = st.sampled_from(
    [
        UNIQ,
        "UNIQ_KEY\x01\x02",
        'UNIQ_KEY\x01has "quote\\\x02',
        "XUNIQ_KEY\x01fake\x02",
        "TAGS\x01a\x02",
        "KEYS\x01k1 k2\x02",
        "KEYS\x01k3\x02",
        "KEYS\x01\x02",
        "KEYS\x01schlüssel k1",
        "MYKEYS\x01k1\x02",
        "WAIT\x01false\x02",
        "DELAY\x012\x02",
        "DELAY\x01-1\x02",
        "TIMER_DELAY_SEC\x019\x02",
        "TRAN_MSG\x01true\x02",
        "CLUSTER\x01other\x02",
        "MSG_REGION\x01r\x02",
        "POP_CK\x01x\x02",
        "colour\x01中文\x02",
        "novalue\x01\x02",
        "noseparator",
        "\x02",
        "last\x01one",
    ]
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["T", "T2", "%RETRY%CG", "SCHEDULE_TOPIC_XXXX", "bad/topic", "", "x" * 200]),
        "e": st.sampled_from(["0", "1", "3", "9", "-1", "x", str(2**33)]),
        "f": st.sampled_from(["0", "1", "769", "4", "8", "64", "x"]),
        "g": st.sampled_from(["0", "1700000000000", "-5", str(2**70)]),
        "h": st.sampled_from(["0", "7", "-1", str(2**31)]),
        "i": st.lists(pieces, max_size=5).map("".join),
        "j": st.sampled_from(["0", "3", "99", ""]),
        "l": st.sampled_from(["1", "16"]),
        "m": st.sampled_from(["false", "true", "0", "1", "FALSE", "maybe"]),
    },
)
usual = st.fixed_dictionaries(
    {
        "e": st.sampled_from(["0", "2"]),
        "g": st.integers(10**12, 10**13 - 1).map(str),
        "i": st.integers(0, 2**64).map(lambda number: f"WAIT\x01true\x02UNIQ_KEY\x01{number:032X}\x02TAGS\x01a\x02"),
    }
)
sends = st.builds(
    lambda given, usual, body, flag, code, opaque: encode_command(
        Command(code, opaque, flag, fields={**SEND_FIELDS, **usual, **given}, body=body or None)
    ),
    fields | st.just({}) | st.just({}),
    usual,
    st.binary(max_size=40),
    st.sampled_from([0, 0, 0, 2]),
    st.sampled_from([310, 310, 310, 320, 10]),
    st.integers(-(2**31), 2**31 - 1),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(sends, min_size=1, max_size=8), st.sampled_from([1, 7, 200, 100_000]))
def test_the_fast_path_stores_and_answers_as_the_plain_one(frames, step):
    assert play(frames, step, fast=True) == play(frames, 100_000, fast=False)


@settings(max_examples=20, deadline=None)
@given(st.lists(sends, min_size=1, max_size=8), st.sampled_from(["SYNC_MASTER", "ASYNC_MASTER"]))
def test_both_paths_wait_for_the_same_things(frames, role):
    waiting = {"flushDiskType": "SYNC_FLUSH", "brokerRole": role}
    assert play(frames, 100_000, fast=True, **waiting) == play(frames, 100_000, fast=False, **waiting)


def test_an_ordinary_send_takes_the_fast_path():
    handled = []
    frame = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ}, body=b"x"))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        end = FastSend(ctx).take(FakePeer(), frame * 3, 0, 3 * len(frame), handled)
    assert end == 3 * len(frame)
    assert len(handled) == 6  # a prefix and a header each


def test_a_changed_setting_or_topic_is_noticed():
    frame = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ, "e": "3"}, body=b"x"))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        fast = FastSend(ctx)
        assert fast.take(FakePeer(), frame, 0, len(frame), []) == len(frame)
        ctx.topics.remove("T", 1)
        assert fast.take(FakePeer(), frame, 0, len(frame), []) == 0
        ensure_topic(ctx, "T", 2)
        assert fast.take(FakePeer(), frame, 0, len(frame), []) == 0


class FakePeer:
    peer = ("127.0.0.1", 5555)


def play(frames: list[bytes], step: int, *, fast: bool, **conf: str) -> tuple[list, list]:
    """(answers, stored messages) after a connection received `frames` in pieces of `step` bytes."""
    return asyncio.run(_play(frames, step, fast, conf))


async def _play(frames: list[bytes], step: int, fast: bool, conf: dict[str, str]) -> tuple[list, list]:
    random.seed(1)  # queue -1 lets the broker choose
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder), **conf) as ctx:
        ensure_topic(ctx, "T", 4)
        options = ConnectionOptions(
            handlers=send.handlers(ctx), after_batch=ctx.publish_appends, fast=FastSend(ctx).take if fast else None
        )
        connection, transport = wired(options)
        data = b"".join(frames)
        for at in range(0, len(data), step):
            connection.data_received(data[at : at + step])
        at_once = len(transport.data)
        ctx.pending_sends.flushed(ctx.store.flush())
        ctx.finish_appends()
        messages = []
        at = 0
        while (record := ctx.store.record_at(at)) is not None and at < ctx.store.log_end:
            messages.append(decode_message(record))
            at += len(record)
        answers = [(a.code, a.opaque, a.flag, a.remark, a.fields, a.body) for a in transport.take_answers()]
        queues = [(queue, offset) for queue in range(4) for offset in range(ctx.store.max_offset("T", queue))]
        units = [ctx.store.unit("T", queue, offset) for queue, offset in queues]
        by_key = ctx.store.query("T", "k1", 32, 0, 2**62).buffers
        found = [decode_message(record).queue_offset for record in by_key]
        return answers, [[_shown(message) for message in messages], ctx.stats.puts("T").count, units, found, at_once]


def _shown(message) -> tuple:
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.body,
        message.properties,
    )
