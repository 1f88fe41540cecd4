"""The fast path stores and answers exactly as the plain one."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.contexts import open_context, wired
from tests.broker.running import SEND_FIELDS
from tests.broker.sends.spellings import STYLES, UNIQ, sends, spell, unusual_fields, usual_fields

from twinlog.base.system_names import HALF_TOPIC, SCHEDULE_TOPIC
from twinlog.broker.sends import parking, send, send_batches, send_properties, send_rows, send_target
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import ConnectionOptions
from twinlog.wire.command import Command, encode_command
from twinlog.wire.message import decode_message

WHY = (None, 'etcd: "full" – 1')  # what a broker says about a message that is on no replica


@pytest.fixture(autouse=True)
def caches_and_numpy_are_used_at_once(monkeypatch):
    monkeypatch.setattr(send_properties, "_SEEN_BEFORE", 0)
    monkeypatch.setattr(send_batches, "_TOGETHER_MIN", 2)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sends, min_size=1, max_size=12), st.sampled_from([1, 7, 200, 100_000, 100_000]))
def test_the_fast_path_stores_and_answers_as_the_plain_one(frames, step):
    assert play(frames, step, fast=True) == play(frames, 100_000, fast=False)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sends, min_size=1, max_size=8), st.sampled_from(["SYNC_MASTER", "ASYNC_MASTER"]), st.sampled_from(WHY))
def test_both_paths_wait_for_the_same_things(frames, role, why):
    waiting = {"flushDiskType": "SYNC_FLUSH", "brokerRole": role, "why": why}
    assert play(frames, 100_000, fast=True, **waiting) == play(frames, 100_000, fast=False, **waiting)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(STYLES),
    st.lists(st.tuples(usual_fields, st.just({}) | st.just({}) | unusual_fields), min_size=3, max_size=14),
    st.permutations(range(16)),
)
def test_one_producers_sends_with_unusual_ones_among_them_are_as_on_the_plain_path(style, drawn, order):
    commands = [
        Command(310, number, fields={**SEND_FIELDS, **usual, **unusual}, body=b"x")
        for number, (usual, unusual) in enumerate(drawn)
    ]
    frames = [spell(style, command, order) for command in commands]
    assert play(frames, 100_000, fast=True) == play(frames, 100_000, fast=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sends, min_size=1, max_size=3), st.integers(0, 2**16), st.integers(0, 255))
def test_a_damaged_byte_is_treated_alike(frames, place, byte):
    frame = bytearray(frames[0])
    frame[8 + place % (len(frame) - 8)] = byte
    frames = [*frames, bytes(frame), *frames]
    assert play(frames, 100_000, fast=True) == play(frames, 100_000, fast=False)


def test_an_ordinary_send_takes_the_fast_path():
    handled = []
    frame = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ}, body=b"x"))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        end = FastSend(ctx).take(FakePeer(), frame * 3, 0, 3 * len(frame), handled)
    assert end == 3 * len(frame)
    assert len(handled) == 1  # all answers in one piece


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


def test_a_new_topic_drops_nothing_that_is_cached(monkeypatch):
    data, whole = ordinary(1) + ordinary(2), len(ordinary(1))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        fast = FastSend(ctx)
        assert fast.take(FakePeer(), data, 0, whole, []) == whole
        monkeypatch.setattr(send_rows, "decode_json_sends", lambda headers: pytest.fail("decoded again"))
        ensure_topic(ctx, "New", 4)
        assert fast.take(FakePeer(), data, whole, 2 * whole, []) == 2 * whole


def test_a_changed_topic_is_noticed_also_when_its_target_was_dropped(monkeypatch):
    """Its header may still be cached, with the target."""
    monkeypatch.setattr(send_target, "_TARGETS_MAX", 1)
    first, other = (
        encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ, "b": name}, body=b"x")) for name in "TU"
    )
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        fast = FastSend(ctx)
        for name, frame in (("T", first), ("U", other)):
            ensure_topic(ctx, name, 4)
            assert fast.take(FakePeer(), frame, 0, len(frame), []) == len(frame)
        ctx.topics.remove("T", 1)
        assert fast.take(FakePeer(), first, 0, len(first), []) == 0


def test_a_template_outlasts_frames_that_arrive_in_parts(monkeypatch):
    data, whole = b"".join(ordinary(number) for number in range(20)), len(ordinary(0))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        fast = FastSend(ctx)
        assert fast.take(FakePeer(), data, 0, whole, []) == whole
        monkeypatch.setattr(send_rows, "decode_json_sends", lambda headers: pytest.fail("decoded again"))
        at = whole
        while at < len(data):  # each chunk ends with a frame that lacks its last byte
            assert fast.take(FakePeer(), data, at, at + whole - 1, []) == at
            assert fast.take(FakePeer(), data, at, min(at + 2 * whole - 1, len(data)), []) == at + whole
            at += whole


def test_a_level_is_woken_only_for_a_message_that_waits_in_it():
    """A part of a transaction does not wait, whatever its delay level."""
    fields = {**SEND_FIELDS, "i": f"{UNIQ}DELAY\x012\x02", "f": "4"}
    frames = [encode_command(Command(310, 5, fields=fields, body=b"x")), ordinary(1)]
    assert play(frames, 100_000, fast=True) == play(frames, 100_000, fast=False)


def test_headers_behind_unusual_sends_are_not_decoded_again_and_again(monkeypatch):
    decoded = []
    decode = send_rows.decode_json_sends
    monkeypatch.setattr(send_rows, "decode_json_sends", lambda headers: decoded.extend(headers) or decode(headers))
    odd = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ, "e": "-1"}, body=b"x"))
    shuffled = [spell("shuffled", Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ}, body=b"x"), list(range(16)))]
    for frames in ([odd] * 300, [ordinary(1), odd] * 150, shuffled * 99 + [odd] * 100 + shuffled * 101):
        decoded.clear()
        play(frames, 1_000_000, fast=True)
        assert len(decoded) < 3 * len(frames)


@pytest.mark.parametrize("extra", ["", "KEYS\x01k{0}\x02"])
def test_every_chunk_of_delayed_messages_wakes_their_level(extra):
    woken = []
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        ctx.wake_delay_level = woken.append
        fast = FastSend(ctx)
        for number in range(5):
            properties = f"UNIQ_KEY\x01{number:032X}\x02DELAY\x013\x02" + extra.format(number)
            frame = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": properties}, body=b"x"))
            assert fast.take(FakePeer(), frame, 0, len(frame), []) == len(frame)
        ctx.publish_appends()
        assert ctx.store.max_offset(SCHEDULE_TOPIC, 2) == 5
    assert woken == [3] * 5


@pytest.mark.parametrize(("name", "value"), [("d", "0" * 4_000 + "4"), ("m", "x" * 50_000)])
def test_long_spellings_are_not_cached(name, value):
    frame = encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ, name: value}, body=b"x"))
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        ensure_topic(ctx, "T", 4)
        fast = FastSend(ctx)
        fast.take(FakePeer(), frame, 0, len(frame), [])
        assert not fast._targets
    assert play([frame], 100_000, fast=True) == play([frame], 100_000, fast=False)


def test_both_paths_count_the_sizes_of_messages_alike():
    bodies = [b"x" * size for size in (1, 1_000, 3_500, 5_000, 600_000)]
    frames = [encode_command(Command(310, 5, fields={**SEND_FIELDS, "i": UNIQ}, body=body)) for body in bodies]
    found = play(frames, 1_000_000, fast=True)
    assert found == play(frames, 1_000_000, fast=False)
    assert found[1][1][0][2] == [1, 2, 1, 1, 0, 0, 0], "up to 1 KiB, 4 KiB, 512 KiB, 1 MiB"


def test_both_paths_say_why_a_message_is_on_no_replica():
    frames = [ordinary(1), ordinary(2)]
    found = play(frames, 1_000_000, fast=True, why=WHY[1], brokerRole="SYNC_MASTER")
    assert found == play(frames, 1_000_000, fast=False, why=WHY[1], brokerRole="SYNC_MASTER")
    assert len(found[0]) == 2 and all("code=11" in one and repr(WHY[1]) in one for one in found[0]), found[0]


def ordinary(number: int) -> bytes:
    """The frame of a send as a Java producer writes it."""
    fields = {**SEND_FIELDS, "i": f"UNIQ_KEY\x01{number:032X}\x02"}
    return encode_command(Command(310, 10 + number, fields=fields, body=b"x"))


class FakePeer:
    peer = ("127.0.0.1", 5555)


def play(frames: list[bytes], step: int, *, fast: bool, why: str | None = None, **conf: str) -> tuple[list, list]:
    """(answers, stored messages) after a connection received `frames` in pieces of `step` bytes."""
    return asyncio.run(_play(frames, step, fast, why, conf))


async def _play(frames: list[bytes], step: int, fast: bool, why: str | None, conf: dict[str, str]) -> tuple[list, list]:
    random.seed(1)  # queue -1 lets the broker choose
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder), **conf) as ctx:
        ensure_topic(ctx, "T", 4)
        ctx.pending_sends.why_late = lambda: why
        woken = []
        ctx.put_hooks.clear()
        parking.install(ctx, lambda topic, due_ms: woken.append((topic, due_ms)))
        options = ConnectionOptions(
            handlers=send.handlers(ctx), after_batch=ctx.publish_appends, fast=FastSend(ctx).take if fast else None
        )
        connection, transport = wired(options)
        data = b"".join(frames)
        for at in range(0, len(data), step):
            if not transport.closed:
                connection.data_received(data[at : at + step])
        at_once = len(transport.data)
        ctx.pending_sends.flushed(ctx.store.flush())
        ctx.finish_appends()
        answers = bytes(transport.data) if not conf else sorted(map(repr, transport.take_answers()))
        records, at = [], 0
        while (record := ctx.store.record_at(at)) is not None and at < ctx.store.log_end:
            records.append(bytes(record))
            at += len(record)
        queues = [(topic, queue) for topic in ("T", "T2", SCHEDULE_TOPIC, HALF_TOPIC) for queue in range(18)]
        units = [ctx.store.unit(*queue, offset) for queue in queues for offset in range(ctx.store.max_offset(*queue))]
        by_key = ctx.store.query("T", "k1", 32, 0, 2**62).buffers
        found = [decode_message(record).queue_offset for record in by_key]
        counters = (ctx.stats.puts("T"), ctx.stats.puts("T2"))
        counts = [(counter.count, counter.bytes, counter.size_counts()) for counter in counters]
        return answers, [records, counts, units, found, at_once, transport.closed, set(woken), ctx.stats.failed_puts]
