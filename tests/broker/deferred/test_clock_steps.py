"""The wall clock is set by an hour while messages wait: all of them come at their time, which is steady."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.broker.deferred.test_transactions import Producer, check, end, prepare
from tests.broker.offline import Clock
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.broker.stored import NOW, bodies, put, stored_context

from twinlog.broker.clients.client_table import Client
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.deferred.stamp_skew import StampSkew
from twinlog.broker.sends.send_checks import check_send
from twinlog.broker.upkeep.maintenance_service import MaintenanceService
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.net.connection import Request
from twinlog.net.errors import RequestRefused
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.headers import SendHeader

HOUR_MS = 3_600_000
LEVEL, LEVEL_MS = "5", 60_000


class Clocks:
    """A steady clock, and a wall clock that is set by `step` now and then."""

    def __init__(self) -> None:
        self.steady, self.wall = Clock(NOW), Clock(NOW)

    def advance(self, ms: int, step: int = 0) -> None:
        self.steady.now_ms += ms
        self.wall.now_ms += ms + step


@pytest.mark.parametrize("steps", [(HOUR_MS, 0), (-HOUR_MS, 0), (HOUR_MS, -HOUR_MS), (-HOUR_MS, HOUR_MS)])
@pytest.mark.parametrize("wish", [{"DELAY": LEVEL}, {"TIMER_DELAY_MS": str(LEVEL_MS)}])
async def test_each_message_waits_as_long_as_it_asked_for_however_the_wall_clock_is_set(tmp_path: Path, steps, wish):
    clocks, due = Clocks(), {}
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        services.timers._table = await services.timers.load()
        seen: dict[bytes, int] = {}

        def look():
            services.delays.deliver_due(clocks.steady())
            while services.timers.read_new() or services.timers.deliver_due(clocks.steady()):
                pass
            for body in bodies(ctx):
                seen.setdefault(body, clocks.steady())

        for number in range(30):
            put(ctx, b"%d" % number, **wish)
            due[b"%d" % number] = clocks.steady() + LEVEL_MS
            clocks.advance(5_000, {5: steps[0], 15: steps[1]}.get(number, 0))
            look()
        for _ in range(30):
            clocks.advance(5_000)
            look()
        late = {body: seen.get(body, 0) - at for body, at in due.items()}
        slack = 0 if "DELAY" in wish else 5_000  # the wheel has slots of a second, and we look every five
        assert all(0 <= ms <= slack for ms in late.values()), late


async def test_what_was_parked_before_a_restart_waits_no_longer_than_its_delay_from_then(tmp_path: Path):
    clock = Clock(NOW + HOUR_MS)
    with stored_context(tmp_path, clock) as ctx:
        DeferredServices(ctx)
        for number in range(5):
            put(ctx, b"%d" % number, DELAY=LEVEL)
            clock.now_ms += 10_000
    clock.now_ms = NOW  # the wall clock was set right, and the broker started again
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        delays.load()
        clock.now_ms += LEVEL_MS - 1
        delays.deliver_due(clock())
        assert bodies(ctx) == []
        clock.now_ms += 1
        delays.deliver_due(clock())
        assert bodies(ctx) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("started_ahead_ms", [HOUR_MS, 0, -HOUR_MS])
async def test_a_replica_whose_clock_was_wrong_at_its_start_delivers_in_time(tmp_path: Path, started_ahead_ms):
    clocks = Clocks()
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall) as ctx:
        DeferredServices(ctx)
        put(ctx, b"parked by the old master", DELAY=LEVEL)
    clocks.steady.now_ms += started_ahead_ms
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall) as ctx:
        clocks.advance(20_000)
        delays = DeferredServices(ctx).delays
        delays.load(took_over=True)
        clocks.advance(LEVEL_MS - 20_001)
        delays.deliver_due(clocks.steady())
        assert bodies(ctx) == []
        clocks.advance(1)
        delays.deliver_due(clocks.steady())
        assert bodies(ctx) == [b"parked by the old master"]


async def test_a_half_message_is_asked_about_after_the_same_time(tmp_path: Path):
    clocks, producer = Clocks(), Producer()
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clocks.steady())
        clocks.advance(0, HOUR_MS)
        prepare(ctx, b"open")
        await check(services)
        assert producer.asked == []
        clocks.advance(10_000)
        await check(services)
        assert len(producer.asked) == 1


def test_a_producers_own_limit_is_counted_by_the_clock_that_stamped_the_birth(tmp_path: Path):
    clocks = Clocks()
    clocks.advance(0, HOUR_MS)
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall) as ctx:
        services = DeferredServices(ctx)
        first, second = (prepare(ctx, CHECK_IMMUNITY_TIME_IN_SECONDS="5") for _ in range(2))
        clocks.advance(5_000)
        assert end(services, first, 8).code == 0
        clocks.advance(1)
        assert end(services, second, 8).code == 604


def test_sends_are_accepted_from_a_time_of_day_on(tmp_path: Path):
    clocks, header = Clocks(), SendHeader(topic="T", queue_id=0, default_topic_queue_nums=4)
    opens_ms = NOW + HOUR_MS
    with stored_context(tmp_path, clocks.steady, wall=clocks.wall, startAcceptSendRequestTimeStamp=opens_ms) as ctx:
        with pytest.raises(RequestRefused, match="broker unable to service, until"):
            check_send(ctx, Request(10, 1), header)
        clocks.advance(0, HOUR_MS)
        assert check_send(ctx, Request(10, 1), header).topic_name == "T"


def test_quiet_clocks_leave_no_marks_and_a_cut_number_of_marks_is_kept():
    skew = StampSkew(1000, NOW)
    for place in range(1000, 2000):
        skew.note(place, NOW + place + place % 7, NOW + place)
    assert len(skew) == 1
    for place in range(2000, 300_000):
        skew.note(place, NOW + 100 * (place % 2), NOW)
    assert len(skew) <= 100_001
    assert skew.due_ms(299_999, NOW + 150, 50) == NOW + 50


@pytest.mark.parametrize("ahead_ms", [0, 1, 99])
def test_a_small_lead_of_the_wall_clock_at_the_start_delivers_nothing_early(ahead_ms):
    """Both clocks are read in whole milliseconds: a lead of 1 ms may be no lead at all."""
    assert StampSkew(1000, NOW, ahead_ms).due_ms(0, NOW + 40, 50) == NOW + 40


@pytest.mark.parametrize("behind_ms", [1, 50, 99])
def test_stamps_that_lag_a_little_deliver_nothing_early(behind_ms):
    assert StampSkew(1000, NOW, -behind_ms).due_ms(0, NOW + 40 - behind_ms, 50) == NOW + 40
    skew = StampSkew(0, NOW)
    skew.note(10, NOW - behind_ms, NOW)
    assert skew.due_ms(10, NOW - behind_ms + 50, 50) == NOW + 50


@pytest.mark.parametrize("set_ms", [-HOUR_MS, 0, HOUR_MS])
def test_thinned_marks_deliver_nothing_early_and_little_late(set_ms):
    skew = StampSkew(0, NOW)
    for place in range(250_000):
        skew.note(place, NOW + set_ms + 100 * (place % 2), NOW)
    assert len(skew) <= 100_001
    for place in (*range(100), *range(1_000, 249_000, 997), 249_999):
        late_ms = skew.due_ms(place, NOW + set_ms + 100 * (place % 2) + 50, 50) - (NOW + 50)
        assert late_ms in (0, 100) or (place < 16 and late_ms >= 0), place


async def test_a_running_broker_waits_by_the_steady_clock_and_stamps_by_the_wall_clock(
    tmp_path: Path, monkeypatch, caplog
):
    real = time.time_ns
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        ctx = broker.context
        before_ms = ctx.clock_ms()
        monkeypatch.setattr(time, "time_ns", lambda: real() + HOUR_MS * 1_000_000)
        assert (await send(client)).code == 0
        assert ctx.clock_ms() - before_ms < HOUR_MS / 2
        assert ctx.store.last_timestamp - before_ms >= HOUR_MS
        watch = MaintenanceService(ctx)
        watch.check_clocks()
        watch.check_clocks()
        assert caplog.text.count("the wall clock was set") == 1


def test_a_name_server_does_not_forget_its_brokers_when_the_wall_clock_is_set(tmp_path: Path, monkeypatch):
    overrides = {"kvConfigPath": str(tmp_path / "kv.json"), "configStorePath": str(tmp_path / "n.properties")}
    clock_ms = NameServerService(load_nameserver_conf(None, overrides=overrides))._clock_ms
    before_ms, real = clock_ms(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + HOUR_MS * 1_000_000)
    assert clock_ms() - before_ms < HOUR_MS / 2
