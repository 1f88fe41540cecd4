"""Whoever steps down appends nothing more: its replicas take over what it had when it refused the first send.

Nor does a master that may have been replaced: its log would differ from the new one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.deferred.test_transactions import GROUP, prepare
from tests.broker.offline import Clock
from tests.broker.stored import NOW, put, stored_context

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred import timer_service
from twinlog.broker.deferred.services import DeferredServices

COUNT = 450  # more than two slices of any kind
HOUR_MS = 3_600_000


def refuse_sends(ctx: BrokerContext) -> None:
    """The first step of a change to SLAVE; the store takes that role some steps later."""
    ctx.conf = dataclasses.replace(ctx.conf, broker=dataclasses.replace(ctx.conf.broker, broker_role="SLAVE"))


@contextlib.asynccontextmanager
async def at_work(loop: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(loop)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def doubt(ctx: BrokerContext) -> None:
    ctx.guard.doubt()


both = pytest.mark.parametrize("stop", [refuse_sends, doubt])
Stop = Callable[[BrokerContext], None]


async def appends_nothing_after(stop: Stop, ctx: BrokerContext) -> None:
    """Let the loop append its first slice, step down or doubt, and let it have its turns."""
    before = ctx.store.log_end
    async with asyncio.timeout(10):
        while ctx.store.log_end == before:
            await asyncio.sleep(0)
    stop(ctx)
    end = ctx.store.log_end
    for _ in range(20):
        await asyncio.sleep(0)
    assert ctx.store.log_end == end
    if stop is doubt:
        ctx.guard.confirm()
        async with asyncio.timeout(10):
            while ctx.store.log_end == end:
                await asyncio.sleep(0)


@both
async def test_delayed_messages_that_are_due_wait_for_the_next_master(tmp_path: Path, stop: Stop):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        delays = DeferredServices(ctx).delays
        for _ in range(COUNT):
            put(ctx, b"x", DELAY="1")
        clock.now_ms += 1_000
        async with at_work(delays._deliver()):
            await appends_nothing_after(stop, ctx)
        assert ctx.delay_offsets.get(1) == ctx.store.max_offset("T", 0) < COUNT


@both
async def test_timers_that_are_due_wait_for_the_next_master(tmp_path: Path, stop: Stop):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        timers = DeferredServices(ctx).timers
        for _ in range(COUNT):
            put(ctx, b"x", TIMER_DELAY_MS="2000")
        clock.now_ms += 10_000
        async with at_work(timers._deliver()):
            await appends_nothing_after(stop, ctx)


@both
async def test_timers_that_wait_for_long_are_parked_anew_by_the_next_master(tmp_path: Path, stop: Stop, monkeypatch):
    clock = Clock(NOW)
    monkeypatch.setattr(timer_service, "ROLL_S", 0)
    with stored_context(tmp_path, clock) as ctx:
        timers = DeferredServices(ctx).timers
        for number in range(COUNT):
            put(ctx, b"x", TIMER_DELAY_SEC=str(72 * 3600), UNIQ_KEY=f"K{number}")
        timers._table = await timers.load()
        while timers.read_new():
            pass
        clock.now_ms += 25 * HOUR_MS
        async with at_work(timers._roll()):
            await appends_nothing_after(stop, ctx)


@both
async def test_half_messages_are_asked_about_by_the_next_master(tmp_path: Path, stop: Stop):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        for _ in range(COUNT):
            prepare(ctx)
        clock.now_ms += 60_000
        async with at_work(services.transactions.check()):
            await appends_nothing_after(stop, ctx)
        if stop is refuse_sends:
            assert ctx.offsets.get(GROUP, HALF_TOPIC, 0) is None, "what the next master has is for it to say"


async def test_a_round_of_checks_does_not_outlive_its_reign(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        prepare(ctx)
        clock.now_ms += 60_000
        end = ctx.store.log_end
        checking = asyncio.create_task(services.transactions.check())
        async with asyncio.timeout(10):
            while ctx.store.log_end == end:  # then it waits for the flush of what it wrote again
                await asyncio.sleep(0)
        ctx.term += 1
        ctx.store.flush()
        await checking
        assert ctx.offsets.get(GROUP, HALF_TOPIC, 0) is None
