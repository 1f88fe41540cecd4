"""The fast path answers pulls exactly as the plain one, whatever changes between them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.contexts import open_context, wired
from tests.broker.running import PULL_FIELDS

from twinlog.broker.clients import client_handlers
from twinlog.broker.context import BrokerContext
from twinlog.broker.ports import fast_path
from twinlog.broker.pulls import pull
from twinlog.broker.pulls.pull import PullHandler
from twinlog.broker.pulls.pull_fast import FastPull
from twinlog.broker.pulls.pull_template import is_plain, take_numbers
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import ConnectionOptions
from twinlog.store import readable_store
from twinlog.store.log.append import Draft
from twinlog.store.queues import block_read
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.frame import BINARY, JSON, encode_frame, take_frame

NOW_MS = 1_700_000_000_000


def pull_frame(spelling: str, opaque: int = 1, code: int = 11, flag: int = 0, **fields: str) -> bytes:
    """A pull as clients write it, and as only a stranger would."""
    members = {**PULL_FIELDS, **fields}
    if spelling == "binary":
        return encode_command(Command(code, opaque, flag, fields=members), BINARY)
    if spelling == "java":
        return encode_command(Command(code, opaque, flag, fields=members), JSON)
    header = {"code": code, "language": "GO", "version": 317, "opaque": opaque, "flag": flag, "extFields": members}
    text = json.dumps(header, separators=(",", ":") if spelling != "blanks" else None)
    if spelling == "twice":  # the last one of a name counts
        text = text.replace('"extFields":{', '"extFields":{"queueOffset":"1","commitOffset":"2",')
    elif spelling == "escaped":
        text = text.replace('"queueOffset"', '"queueOffse\\u0074"')
    elif spelling == "zeros":
        text = text.replace('"queueOffset":"', '"queueOffset":"00')
    return encode_frame(text.encode(), b"body" if spelling == "body" else None)


def heartbeat(expression: str, kind: str, version: int, model: str) -> bytes:
    codes = [65, 66] if expression == "A || B" else []
    data = {"topic": "T", "subString": expression, "expressionType": kind, "codeSet": codes, "subVersion": version}
    group = {"groupName": "CG", "consumeType": "CONSUME_PASSIVELY", "messageModel": model}
    body = {"clientID": "c", "consumerDataSet": [{**group, "subscriptionDataSet": [data]}], "producerDataSet": []}
    return encode_command(Command(34, 7, fields={}, body=json.dumps(body).encode()))


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """So that some pulls are answered from blocks of units that were examined before."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (block_read, readable_store):
            patch.setattr(module, "AHEAD_UNITS_MIN", 5)
            patch.setattr(module, "AHEAD_UNITS_MAX", 9)
        patch.setattr("twinlog.store.queues.read.UNITS_MIN", 1)
        yield


SPELLINGS = ["java"] * 6 + ["go", "blanks", "twice", "escaped", "zeros", "binary", "body"]
CONSTANTS = st.fixed_dictionaries(
    {
        "spelling": st.sampled_from(SPELLINGS),
        "code": st.sampled_from([11, 11, 361]),
        "topic": st.sampled_from(["T", "T", "T", "None"]),
        "consumerGroup": st.sampled_from(["CG", "CG", "CG", "Other"]),
        "queueId": st.sampled_from(["0", "0", "1", "9"]),
        "maxMsgNums": st.sampled_from(["32", "3", "1"]),
        "sysFlag": st.integers(0, 7).map(str),
        "subscription": st.sampled_from(["*", "A", "n = '1'"]),
        "expressionType": st.sampled_from(["TAG", "TAG", "SQL92"]),
        "subVersion": st.sampled_from(["0", "0", "2"]),
    }
)
NUMBERS = st.fixed_dictionaries(
    {
        "opaque": st.integers(0, 2_000_000_000),
        "queueOffset": st.integers(0, 44).map(str) | st.just("-1"),
        "commitOffset": st.integers(0, 9).map(str),
    }
)
CHANGES = st.one_of(
    st.builds(
        lambda kind, version, model: ("frame", heartbeat(*kind, version, model)),
        st.sampled_from([("*", "TAG"), ("A || B", "TAG"), ("n = '1'", "SQL92")]),
        st.integers(1, 4),
        st.sampled_from(["CLUSTERING", "BROADCASTING"]),
    ),
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("reset"), st.integers(0, 20)),
    st.tuples(st.just("perm"), st.sampled_from([2, 4, 6])),
    st.tuples(st.just("group"), st.booleans()),
    st.tuples(st.just("forbid"), st.booleans()),
    st.tuples(st.just("permission"), st.sampled_from([2, 6])),
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("new topic"), st.integers(0, 9)),
)
START = [("frame", heartbeat("*", "TAG", 1, "CLUSTERING"))]


@st.composite
def histories(draw: st.DrawFn) -> list:
    """Few consumers, which pull again and again, and what happens meanwhile."""
    consumers = draw(st.lists(CONSTANTS, min_size=1, max_size=2))
    pulls = st.builds(lambda who, numbers: ("frame", pull_frame(**who, **numbers)), st.sampled_from(consumers), NUMBERS)
    return draw(st.lists(pulls | pulls | CHANGES, min_size=2, max_size=25))


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from([1, 3]))
def test_the_fast_path_answers_as_the_plain_one(steps, at_once):
    assert play(steps, at_once, fast=True) == play(steps, at_once, fast=False)


@pytest.mark.parametrize("spelling", ["java", "go", "twice"])
@pytest.mark.parametrize("sys_flag", ["3", "4"], ids=["heartbeat", "own filter"])
@pytest.mark.parametrize(
    "between",
    [
        ("frame", heartbeat("A || B", "TAG", 2, "CLUSTERING")),
        ("frame", heartbeat("n = '1'", "SQL92", 2, "CLUSTERING")),
        ("frame", heartbeat("*", "TAG", 1, "BROADCASTING")),
        ("reset", 7),
        ("perm", 2),
        ("group", False),
        ("forbid", False),
        ("permission", 2),
        ("delete", None),
    ],
    ids=["tags", "SQL92", "broadcasting", "reset", "topic", "group", "forbidden", "broker", "deleted"],
)
def test_what_changes_between_two_pulls_counts(between, sys_flag, spelling):
    """Seen to fail without the look at the subscription or at resets, and for a name that is there twice."""
    first, *later = [
        ("frame", pull_frame(spelling, number, sysFlag=sys_flag, queueOffset=str(number), commitOffset=str(number)))
        for number in (3, 4, 5)
    ]
    assert play([first, between, *later], 1, fast=True) == play([first, between, *later], 1, fast=False)


def play(steps: list, at_once: int, *, fast: bool) -> list:
    """All answers, and what the broker knows in the end. Frames that follow one another arrive together."""

    async def run(ctx: BrokerContext) -> list:
        handlers = {**pull.handlers(ctx), **client_handlers.handlers(ctx)}
        options = ConnectionOptions(handlers=handlers, fast=fast_path(ctx, FastSend(ctx)) if fast else None)
        connection, transport = wired(options)
        waiting: list[bytes] = []
        for what, value in [*START, *steps, ("end", None)]:
            if what == "frame":
                waiting.append(value)
            if what != "frame" or len(waiting) == at_once:
                connection.data_received(b"".join(waiting))
                waiting.clear()
            if what != "frame":
                change(ctx, what, value)
        gets = [(key, row.count, row.bytes) for key, row in ctx.stats.get_rows()]
        times = {key: sum(row.counts) for key, row in ctx.stats.rpc.rows.items() if sum(row.counts)}
        offsets = {key: dict(row) for key, row in ctx.offsets.rows.items()}
        pulled = [ctx.offsets.pull_offset("CG", "T", queue) for queue in range(2)]
        found = ctx.stats.pulls_found, ctx.stats.pulls_missed, len(ctx.holds)
        return [b"".join(answers(transport.data)), gets, times, offsets, pulled, found]

    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder), enablePropertyFilter=True) as ctx:
        ensure_topic(ctx, "T", 2)
        for number in range(40):
            change(ctx, "send", number % 2)
        return asyncio.run(run(ctx))


def answers(data: bytearray) -> Iterator[bytes]:
    """Without the notices that the broker sends by itself: their numbers go on from test to test."""
    while data:
        before = bytes(data)
        frame = take_frame(data)
        assert frame is not None
        if decode_command(frame).is_response:
            yield before[: len(before) - len(data)]


def change(ctx: BrokerContext, what: str, value: int | bool | None) -> None:
    if what == "send":
        number = ctx.store.max_offset("T", 0) + ctx.store.max_offset("T", 1)
        text = f"TAGS\x01{'ABC'[number % 3]}\x02n\x01{number % 2}\x02".encode()
        ctx.store.append(Draft("T", int(value or 0), b"body", text))
        ctx.store.dispatch_pending()
    elif what == "reset":
        ctx.offsets.reset("CG", "T", 0, int(value or 0), NOW_MS)
    elif what == "perm" and (topic := ctx.topics.get("T")) is not None:
        ctx.topics.put("T", type(topic)("T", 2, 2, int(value or 0)), NOW_MS)
    elif what == "group" and (group := ctx.groups.get("CG")) is not None:
        ctx.groups.put("CG", type(group)("CG", consume_enable=bool(value)), NOW_MS)
    elif what == "forbid":
        ctx.groups.set_readable("CG", "T", bool(value), NOW_MS)
    elif what == "permission":
        broker = dataclasses.replace(ctx.conf.broker, permission=int(value or 0))
        ctx.replace_conf(dataclasses.replace(ctx.conf, broker=broker))
    elif what == "delete":
        ctx.store.delete_topic("T")
    elif what == "new topic":
        ensure_topic(ctx, f"New{value}", 1)


def test_a_consumers_next_pulls_are_not_decoded(monkeypatch):
    steps = [("frame", pull_frame("java", number, queueOffset=str(number))) for number in (1, 3, 5)]
    steps.insert(1, ("new topic", 0))
    handled, learned, learn = [], [], FastPull._learn
    monkeypatch.setattr(PullHandler, "handle", lambda self, request: handled.append(request))
    monkeypatch.setattr(FastPull, "_learn", lambda self, *args: learned.append(1) or learn(self, *args))
    answered, *_ = play(steps, 1, fast=True)
    assert answered.count(b'"remark":"FOUND"') == 3
    assert (handled, learned) == ([], [1])


@pytest.mark.parametrize("fields", [{}, {"subscription": "A"}], ids=["all", "a tag"])
def test_a_backlog_is_answered_from_blocks(monkeypatch, fields):
    fields |= {"maxMsgNums": "1", "sysFlag": "5"}  # with offsets to commit
    steps = [("frame", pull_frame("java", at, queueOffset=f"{at}", commitOffset=f"{at}", **fields)) for at in range(10)]
    read, checked = [], PullHandler.answer_checked
    monkeypatch.setattr(PullHandler, "answer_checked", lambda self, *args: read.append(1) or checked(self, *args))
    assert play(steps, 1, fast=True) == play(steps, 1, fast=False)
    assert len(read) < 5


def test_answers_of_many_pulls_are_written_in_between(monkeypatch):
    """As those of the plain path: a peer that does not read stops its next requests."""
    monkeypatch.setattr("twinlog.net.connection._OUT_BYTES_MAX", 1_000)
    steps = [("frame", pull_frame("java", number)) for number in range(40)]
    assert play(steps, 40, fast=True) == play(steps, 40, fast=False)


def test_a_peer_whose_headers_always_differ_is_not_learned_for_ever(monkeypatch):
    monkeypatch.setattr("twinlog.broker.pulls.pull_fast._MISSES_MAX", 3)
    learned, decode = [], pull.read_fields
    monkeypatch.setattr("twinlog.broker.pulls.pull_fast.read_fields", lambda one: learned.append(1) or decode(one))
    steps = [("frame", pull_frame("java", number, suspendTimeoutMillis=str(number))) for number in range(10)]
    answered, *_ = play(steps, 1, fast=True)
    assert answered.count(b'"remark":"FOUND"') == 10
    assert len(learned) == 3


def test_only_numbers_written_plainly_are_taken():
    header = pull_frame("java", 17, queueOffset="128", commitOffset="96")[8:]
    numbers = take_numbers(header, 0, len(header))
    assert numbers is not None and is_plain(header)
    assert numbers[1:] == (96, 128, 17)
    for old, new in [
        (b'"128"', b'"x"'),
        (b'"128"', b'""'),
        (b":17,", b":017,"),
        (b":17,", b':"17",'),
        (b'"96"', b'"-6"'),
    ]:
        assert take_numbers(header.replace(old, new), 0, len(header)) is None
    assert not is_plain(header.replace(b'"T"', b'"\\u0054"'))
    assert not is_plain(header.replace(b'"topic"', b'"opaque"'))
