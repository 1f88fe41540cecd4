"""Delayed messages on a real store: in order, never early, and none lost by a restart."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.offline import Clock
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred.delay_service import RETRY_MS
from twinlog.broker.deferred.services import DeferredServices
from twinlog.store.log import log_access
from twinlog.store.log.append import Appended, Draft, PutStatus


async def test_a_delayed_message_appears_when_it_is_due_and_not_before(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        put(ctx, b"later", queue_id=2, DELAY="2", TAGS="a")
        assert bodies(ctx, queue_id=2) == []
        for waited_ms in (0, 4_999):
            clock.now_ms = NOW + waited_ms
            assert not delays.deliver_due(clock())
            assert bodies(ctx, queue_id=2) == []
        clock.now_ms = NOW + 5_000
        delays.deliver_due(clock())
        (message,) = messages(ctx, queue_id=2)
        assert message.body == b"later" and message.store_timestamp == NOW + 5_000
        assert message.born_host == ("127.0.0.1", 4711)
        assert message.properties.pop("__CRC32#").isdigit()
        assert message.properties == {"DELAY": "2", "TAGS": "a", "REAL_TOPIC": "T", "REAL_QID": "2"}
        assert dict(ctx.delay_offsets.rows) == {2: 1}


async def test_messages_of_one_level_keep_their_order_and_levels_do_not_wait_for_each_other(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        put(ctx, b"slow", DELAY="3")
        for number in range(5):
            clock.now_ms += 10
            put(ctx, b"%d" % number, DELAY="1")
        clock.now_ms = NOW + 1_030
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"0", b"1", b"2"]
        clock.now_ms = NOW + 10_000
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"0", b"1", b"2", b"3", b"4", b"slow"]


async def test_what_is_on_disk_only_is_read_in_a_thread_before_it_is_delivered(tmp_path: Path, monkeypatch):
    """Seen to fail with a read in the thread of the loop."""
    clock, read, in_loop = Clock(NOW), [], threading.get_ident()
    with stored_context(tmp_path, clock) as ctx:
        DeferredServices(ctx).delays.load()
        for number in range(3):
            put(ctx, b"%d" % number, DELAY="1")
        put(ctx, b"not yet", DELAY="2")
    monkeypatch.setattr(log_access, "bytes_in_memory", lambda *_: 0)
    monkeypatch.setattr(log_access, "read_through", lambda *part: read.append((threading.get_ident(), part[2])))
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        first, second, third, _ = (ctx.store.record_at(at) for at in record_places(ctx))
        assert not await delays.load_due(clock()) and not read
        clock.now_ms += 1_000
        assert await delays.load_due(clock())
        assert sum(size for _, size in read) == len(first) + len(second) + len(third)
        assert all(thread != in_loop for thread, _ in read)
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"0", b"1", b"2"]
        ctx.disk_work.close()


async def test_a_level_that_the_disk_does_not_return_waits_and_holds_up_no_other(tmp_path: Path, monkeypatch):
    """Seen to fail with an OSError that ended the service: nothing was delivered any more."""
    clock, broken = Clock(NOW), True
    with stored_context(tmp_path, clock) as ctx:
        DeferredServices(ctx).delays.load()
        for level in ("1", "2"):
            put(ctx, level.encode(), DELAY=level)
        first = len(ctx.store.record_at(0))

    def read_through(_: int, position: int, size: int) -> None:
        if broken and position < first:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log_access, "bytes_in_memory", lambda *_: 0)
    monkeypatch.setattr(log_access, "read_through", read_through)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        clock.now_ms += 5_000
        for _ in range(2):
            await delays.load_due(clock())
            assert not delays.deliver_due(clock())
            assert bodies(ctx) == [b"2"] and delays._alarm._at_ms == clock() + RETRY_MS
        broken = False
        await delays.load_due(clock())
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"2", b"1"]
        ctx.disk_work.close()


def record_places(ctx: BrokerContext) -> list[int]:
    """Where the records of the log begin."""
    places, at = [], ctx.store.log_start
    while at < ctx.store.log_end:
        places.append(at)
        at += len(ctx.store.record_at(at))
    return places


async def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        put(ctx, b"first", DELAY="1")
        put(ctx, b"second", DELAY="2")
        clock.now_ms += 1_000
        delays.deliver_due(clock())
    clock.now_ms += 60_000
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"first", b"second"]


async def test_more_messages_than_a_slice_take_several(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        for _ in range(450):
            put(ctx, b"x", DELAY="1")
        clock.now_ms += 1_000
        assert delays.deliver_due(clock())
        assert delays.deliver_due(clock())
        assert not delays.deliver_due(clock())
        assert ctx.store.max_offset("T", 0) == 450


async def test_a_message_that_does_not_say_where_it_belongs_holds_nobody_up(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        ctx.store.append(Draft("SCHEDULE_TOPIC_XXXX", 0, b"lost", b"DELAY\x011\x02"))
        put(ctx, b"fine", DELAY="1")
        clock.now_ms += 1_000
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"fine"]


class Refusing:
    """A store that takes no message for which `refusal` gives a status; `asked` are the bodies it was given."""

    def __init__(self, ctx: BrokerContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refusal: Callable[[Draft], PutStatus | None] = lambda draft: None
        self.asked: list[bytes] = []
        append = ctx.store.append

        def ask(draft: Draft) -> Appended:
            self.asked.append(draft.body)
            status = self.refusal(draft)
            return append(draft) if status is None else Appended(status)

        monkeypatch.setattr(ctx.store, "append", ask)


async def test_while_the_store_refuses_writes_nothing_is_counted_as_delivered(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        for number in range(3):
            put(ctx, b"%d" % number, DELAY="1")
        put(ctx, b"slow", DELAY="2")
        end = ctx.store.log_end
        clock.now_ms += 5_000
        ctx.store.flags.set(2)
        assert not delays.deliver_due(clock())
        assert (bodies(ctx), ctx.store.log_end, dict(ctx.delay_offsets.rows)) == ([], end, {})
        ctx.store.flags.clear(2)
        assert not delays.deliver_due(clock())
        assert bodies(ctx) == [b"0", b"1", b"2", b"slow"]
        assert dict(ctx.delay_offsets.rows) == {1: 3, 2: 1}


async def test_a_store_that_refuses_is_asked_once_a_level_and_again_a_second_later(tmp_path: Path, monkeypatch):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        for body, level in ((b"a1", "1"), (b"a2", "1"), (b"b1", "2"), (b"b2", "2")):
            put(ctx, body, DELAY=level)
        clock.now_ms += 5_000
        store = Refusing(ctx, monkeypatch)
        store.refusal = lambda draft: None if draft.body == b"a1" else PutStatus.SERVICE_NOT_AVAILABLE
        await delays._alarm.wait()  # what was set before
        assert not delays.deliver_due(clock())  # no more to do for now: True would try again at once, for ever
        assert store.asked == [b"a1", b"a2", b"b1"]
        assert (bodies(ctx), dict(ctx.delay_offsets.rows)) == ([b"a1"], {1: 1})
        assert delays._alarm._at_ms == clock() + RETRY_MS
        store.refusal = lambda draft: None
        clock.now_ms += RETRY_MS
        assert not delays.deliver_due(clock())
        assert store.asked == [b"a1", b"a2", b"b1", b"a2", b"b1", b"b2"]
        assert (bodies(ctx), dict(ctx.delay_offsets.rows)) == ([b"a1", b"a2", b"b1", b"b2"], {1: 2, 2: 2})


@pytest.mark.parametrize("status", [PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED])
async def test_a_message_that_no_store_will_ever_take_is_named_and_holds_nobody_up(
    tmp_path: Path, monkeypatch, caplog, status: PutStatus
):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        for body in (b"1", b"bad", b"3"):
            put(ctx, body, DELAY="1")
        clock.now_ms += 1_000
        Refusing(ctx, monkeypatch).refusal = lambda draft: status if draft.body == b"bad" else None
        assert not delays.deliver_due(clock())
        assert (bodies(ctx), dict(ctx.delay_offsets.rows)) == ([b"1", b"3"], {1: 3})
        assert "a delayed message was refused" in caplog.text and status.name in caplog.text


async def test_a_replica_that_takes_over_repeats_the_last_deliveries_rather_than_miss_one(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        put(ctx, b"old", DELAY="1")
        clock.now_ms += 60_000
        delays.deliver_due(clock())
        put(ctx, b"new", DELAY="1")
        clock.now_ms += 1_000
        ctx.delay_offsets.update(1, 2, clock())  # the master says it has delivered both; our log ends before that
        delays.load(took_over=True)
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"old", b"new"]
