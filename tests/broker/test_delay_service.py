"""Delayed messages on a real store: in order, never early, and none lost by a restart."""

from __future__ import annotations

from pathlib import Path

from tests.broker.offline import Clock
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.broker.message_services import MessageServices
from twinlog.store.append import Draft


async def test_a_delayed_message_appears_when_it_is_due_and_not_before(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
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
        assert message.properties == {"DELAY": "2", "TAGS": "a", "REAL_TOPIC": "T", "REAL_QID": "2"}
        assert dict(ctx.delay_offsets.rows) == {2: 1}


async def test_messages_of_one_level_keep_their_order_and_levels_do_not_wait_for_each_other(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
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


async def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
        delays.load()
        put(ctx, b"first", DELAY="1")
        put(ctx, b"second", DELAY="2")
        clock.now_ms += 1_000
        delays.deliver_due(clock())
    clock.now_ms += 60_000
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
        delays.load()
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"first", b"second"]


async def test_more_messages_than_a_slice_take_several(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
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
        delays = MessageServices(ctx).delays
        delays.load()
        ctx.store.append(Draft("SCHEDULE_TOPIC_XXXX", 0, b"lost", b"DELAY\x011\x02"))
        put(ctx, b"fine", DELAY="1")
        clock.now_ms += 1_000
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"fine"]


async def test_while_the_store_refuses_writes_nothing_is_counted_as_delivered(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
        delays.load()
        put(ctx, b"later", DELAY="1")
        clock.now_ms += 1_000
        ctx.store.flags.set(2)
        delays.deliver_due(clock())
        assert ctx.delay_offsets.get(1) is None
        ctx.store.flags.clear(2)
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"later"]


async def test_a_replica_that_takes_over_repeats_the_last_deliveries_rather_than_miss_one(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = MessageServices(ctx).delays
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
