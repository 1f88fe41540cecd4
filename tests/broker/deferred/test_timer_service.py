"""Timer messages on a real store: at their time, across restarts, and in a way that Java can go on from."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from pathlib import Path

from tests.broker.offline import Clock, Wire, ask, asked
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred import timer_service
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.deferred.timer_service import TimerService
from twinlog.metadata import timer_check
from twinlog.wire.values.recall_handle import RecallHandle

HOUR_MS = 3_600_000


async def started(ctx: BrokerContext) -> TimerService:
    timers = DeferredServices(ctx).timers
    timers._table = await timers.load()
    return timers


def at(clock: Clock, timers: TimerService, now_ms: int) -> None:
    clock.now_ms = now_ms
    while timers.read_new() or timers.deliver_due(now_ms):
        pass


async def test_a_timer_message_appears_at_its_time_and_not_before(tmp_path: Path):
    clock = Clock(NOW + 300)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"tea", queue_id=1, TIMER_DELAY_MS="2500", UNIQ_KEY="K")
        at(clock, timers, NOW + 2_799)
        assert bodies(ctx, queue_id=1) == []
        at(clock, timers, NOW + 3_000)
        (message,) = messages(ctx, queue_id=1)
        assert message.body == b"tea"
        assert message.properties["TIMER_OUT_MS"] == str(NOW + 2_000)
        assert message.properties["TIMER_DEQUEUE_MS"] == str(NOW + 3_000)
        assert timers.pending == 0


async def test_timers_come_in_the_order_of_their_times(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        for seconds in (9, 3, 6):
            put(ctx, b"%d" % seconds, TIMER_DELAY_SEC=str(seconds))
        at(clock, timers, NOW + 7_000)
        assert bodies(ctx) == [b"3", b"6"]
        assert timers.pending == 1
        at(clock, timers, NOW + 9_000)
        assert bodies(ctx) == [b"3", b"6", b"9"]


async def test_a_restart_repeats_nothing_and_forgets_nothing(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"late", TIMER_DELAY_SEC="60")
        put(ctx, b"soon", TIMER_DELAY_SEC="2")
        at(clock, timers, NOW + 5_000)
        timers.save()
        put(ctx, b"unseen", TIMER_DELAY_SEC="3")
    clock.now_ms = NOW + 30_000
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        at(clock, timers, NOW + 30_000)
        assert bodies(ctx) == [b"soon", b"unseen"]
        at(clock, timers, NOW + 60_000)
        assert bodies(ctx) == [b"soon", b"unseen", b"late"]


async def test_progress_that_waits_for_a_flush_when_the_broker_stops_is_saved_at_the_end(tmp_path: Path, monkeypatch):
    clock, is_waiting = Clock(NOW), asyncio.Event()

    async def never_flushed(store: object, log_end: int) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(timer_service, "SAVE_S", 0)
    monkeypatch.setattr(timer_service, "until_flushed", never_flushed)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"soon", TIMER_DELAY_SEC="2")
        at(clock, timers, NOW + 5_000)
        saving = asyncio.create_task(timers._persist())
        async with asyncio.timeout(30):
            await is_waiting.wait()
        saving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await saving
        timers.save()
        assert timer_check.decode_file((tmp_path / "config" / "timercheck").read_bytes()).queue_offset == 1


async def test_without_a_check_point_everything_left_in_the_queue_is_delivered(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"a", TIMER_DELAY_SEC="2")
        at(clock, timers, NOW + 5_000)
    with stored_context(tmp_path, clock) as ctx:
        at(clock, await started(ctx), NOW + 6_000)
        assert bodies(ctx) == [b"a", b"a"]  # twice rather than never


async def test_after_java_ran_its_numbers_decide(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        await started(ctx)
        put(ctx, b"delivered by Java", TIMER_DELAY_SEC="2")
        put(ctx, b"parked by Java", TIMER_DELAY_SEC="60")
        put(ctx, b"not seen by Java", TIMER_DELAY_SEC="3")
    java = timer_check.JavaCheckpoint(NOW + 10_000, 520, 2, 2, 0, NOW, 7).encode()
    (tmp_path / "config" / "timercheck").write_bytes(java.ljust(4096, b"\0"))
    (tmp_path / "timerwheel").write_bytes(b"\0" * 64)
    (tmp_path / "timerlog").mkdir()
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        at(clock, timers, NOW + 20_000)
        assert bodies(ctx) == [b"not seen by Java"]
        timers.save()
        saved = timer_check.decode_java_checkpoint((tmp_path / "config" / "timercheck").read_bytes())
        assert (saved.queue_offset, saved.master_queue_offset) == (1, 1)  # Java must park offset 1 anew
        assert not (tmp_path / "timerwheel").exists() and not (tmp_path / "timerlog").exists()
        at(clock, timers, NOW + 60_000)
        assert bodies(ctx) == [b"not seen by Java", b"parked by Java"]


async def test_a_message_that_waits_for_long_is_parked_anew_and_comes_once(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"in three days", TIMER_DELAY_SEC=str(72 * 3600), UNIQ_KEY="K")
        at(clock, timers, NOW + 25 * HOUR_MS)
        assert not timers.roll(clock())
        at(clock, timers, clock())
        assert timers.pending == 1
        assert ctx.store.max_offset("rmq_sys_wheel_timer", 0) == 2
        assert messages(ctx, "rmq_sys_wheel_timer")[1].properties["TIMER_ROLL_TIMES"] == "1"
        assert not timers.roll(clock())
        assert timers.progress().low_offset == 1
    with stored_context(tmp_path, clock) as ctx:  # and after a crash, which knows both copies
        timers = await started(ctx)
        at(clock, timers, NOW + 72 * HOUR_MS)
        assert bodies(ctx) == [b"in three days"]


async def test_a_recalled_message_is_not_delivered(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock, recallMessageEnable=True) as ctx:
        services = DeferredServices(ctx)
        timers = services.timers
        timers._table = await timers.load()
        put(ctx, b"regretted", TIMER_DELAY_SEC="10", UNIQ_KEY="K1")
        put(ctx, b"kept", TIMER_DELAY_SEC="10", UNIQ_KEY="K2")
        handle = RecallHandle("T", "broker-a", NOW + 9_001, "K1").encode()
        wire = Wire()
        wire.peer = ("127.0.0.1", 5)
        answer = ask(services.handlers(), 370, {"topic": "T", "recallHandle": handle}, wire=wire)
        assert (answer.code, answer.fields) == (0, {"msgId": "K1"})
        at(clock, timers, NOW + 30_000)
        assert bodies(ctx) == [b"kept"]
        answer = ask(services.handlers(), 370, {"topic": "T", "recallHandle": "nonsense"}, wire=wire)
        assert (answer.code, answer.remark) == (604, "recall failed, handle is invalid")


async def test_a_recalled_message_stays_recalled_when_old_messages_are_parked_anew(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock, recallMessageEnable=True) as ctx:
        services = DeferredServices(ctx)
        timers = services.timers
        timers._table = await timers.load()
        put(ctx, b"regretted", TIMER_DELAY_SEC=str(30 * 3600), UNIQ_KEY="K")
        at(clock, timers, NOW + 10 * HOUR_MS)
        wire = Wire()
        wire.peer = ("127.0.0.1", 5)
        handle = RecallHandle("T", "broker-a", NOW + 30 * HOUR_MS - 999, "K").encode()
        assert ask(services.handlers(), 370, {"topic": "T", "recallHandle": handle}, wire=wire).code == 0
        at(clock, timers, NOW + 25 * HOUR_MS)  # the message is a day old, its recall is not
        assert not timers.roll(clock())
        at(clock, timers, NOW + 31 * HOUR_MS)
        assert bodies(ctx) == [] and timers.pending == 0


async def test_a_recall_is_acknowledged_as_safely_as_a_send(tmp_path: Path):
    with stored_context(tmp_path, recallMessageEnable=True, flushDiskType="SYNC_FLUSH") as ctx:
        wire, sent = Wire(), []
        wire.peer, wire.send = ("127.0.0.1", 5), sent.append  # type: ignore[attr-defined]
        handle = RecallHandle("T", "broker-a", NOW + 9_001, "K").encode()
        fields = {"topic": "T", "recallHandle": handle}
        assert DeferredServices(ctx).handlers()[370](asked(370, fields, wire=wire)) is None
        assert sent == []
        ctx.store.flush()
        ctx.pending_sends.flushed(ctx.store.log_end)
        assert [(answer.code, answer.fields) for answer in sent] == [(0, {"msgId": "K"})]


async def test_a_handle_of_another_topic_broker_or_time_recalls_nothing(tmp_path: Path):
    with stored_context(tmp_path, Clock(NOW), recallMessageEnable=True) as ctx:
        handlers, wire, soon = DeferredServices(ctx).handlers(), Wire(), NOW + 9_001
        wire.peer = ("127.0.0.1", 5)

        def refused(topic: str, *named: object) -> tuple[int, str | None]:
            fields = {"topic": topic, "recallHandle": RecallHandle(*named).encode()}  # type: ignore[arg-type]
            answer = ask(handlers, 370, fields, wire=wire)
            return answer.code, answer.remark

        assert refused("T", "Other", "broker-a", soon, "K") == (604, "recall failed, handle is invalid")
        assert refused("T", "T", "broker-b", soon, "K") == (604, "recall failed, broker service not available")
        for time_ms in (NOW, NOW - HOUR_MS, NOW + 73 * HOUR_MS):
            assert refused("T", "T", "broker-a", time_ms, "K") == (604, "recall failed, timestamp invalid")
        assert refused("Nowhere", "Nowhere", "broker-a", soon, "K")[0] == 17
        assert ctx.store.max_offset("rmq_sys_wheel_timer", 0) == 0
        ctx.conf = dataclasses.replace(ctx.conf, broker=dataclasses.replace(ctx.conf.broker, broker_role="SLAVE"))
        assert refused("T", "T", "broker-a", soon, "K")[0] == 11


async def test_recall_is_forbidden_unless_the_operator_allows_it(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        answer = ask(DeferredServices(ctx).handlers(), 370, {"topic": "T"})
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")


async def test_garbage_in_the_wheel_queue_holds_nobody_up(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"no time", topic="rmq_sys_wheel_timer")
        put(ctx, b"no place", topic="rmq_sys_wheel_timer", TIMER_OUT_MS=str(NOW))
        put(ctx, b"fine", TIMER_DELAY_SEC="1")
        at(clock, timers, NOW + 5_000)
        assert bodies(ctx) == [b"fine"]
        assert timers.pending == 0


async def test_a_replica_gets_what_counts_as_delivered(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"late", TIMER_DELAY_SEC="60")
        at(clock, timers, NOW + 5_000)
        progress = timer_check.progress_of_master(timers.checkpoint())
        assert (progress.read_time_ms, progress.queue_offset) == (NOW + 5_000, 1)
        assert b'"timingCount":{}' in timers.metrics()


async def test_a_replica_that_takes_over_delivers_what_its_master_had_not(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = await started(ctx)
        put(ctx, b"late", TIMER_DELAY_SEC="60")
        put(ctx, b"soon", TIMER_DELAY_SEC="2")
        at(clock, timers, NOW + 5_000)
        answers = [timers.checkpoint()]
    with stored_context(tmp_path, clock, brokerRole="SLAVE", brokerId=1) as ctx:
        timers = DeferredServices(ctx).timers
        assert not timers.adopt_body(answers[0])  # kept until the log has surely caught up with it
        assert timers.adopt_body(answers[0])
        assert not timers.adopt_body(answers[0])
    java = timer_check.decode_java_checkpoint((tmp_path / "config" / "timercheck").read_bytes())
    assert java.queue_offset == 0  # which message is the lowest pending one, a replica does not know
    with stored_context(tmp_path, clock) as ctx:
        at(clock, await started(ctx), NOW + 60_000)
        assert bodies(ctx) == [b"soon", b"late"]
