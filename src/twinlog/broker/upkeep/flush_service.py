"""When the log and the queues reach the disk.

ASYNC_FLUSH: every flushIntervalCommitLog, if enough pages are new or the last flush is long ago.
SYNC_FLUSH: as soon as a send waits; sends that arrive during a flush share the next one (group commit).
Flushes block in a thread, while the loop appends what the next flush covers. Each service has its own thread, so other
work (requests of peers, slow name resolution) cannot delay a flush that a SYNC_FLUSH send waits for.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from twinlog.store.errors import StoreError
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext

log = get_logger(__name__)
PAGE_BYTES = 4096
QUEUE_UNITS_PER_PAGE = PAGE_BYTES // 20
EXPIRE_TICK_S = 0.1


class FlushService:
    """Flushes the commit log, and reports how far it is durable to the sends that wait."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._wake = asyncio.Event()
        self._failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush-log")
        ctx.pending_sends.on_flush_wanted.append(self._wake.set)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._flush_log(), name="flush-log")
                tasks.create_task(self._expire_answers(), name="expire-answers")
        finally:
            self._thread.shutdown()  # the store closes after this

    async def _flush_log(self) -> None:
        loop = asyncio.get_running_loop()
        thorough_at = loop.time()
        while True:
            settings = self._ctx.conf.store
            try:
                async with asyncio.timeout(settings.flush_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            waited_for = self._wake.is_set()
            self._wake.clear()
            store = self._ctx.store
            behind = store.log_end - store.flushed_end
            thorough = loop.time() - thorough_at >= settings.flush_thorough_interval_ms / 1000
            if thorough:
                thorough_at = loop.time()
            if behind and (waited_for or thorough or behind >= settings.flush_least_pages * PAGE_BYTES):
                await self._flush_once()

    async def _flush_once(self) -> None:
        store = self._ctx.store
        if self._failed:  # every later flush of the log fails as the first one did, which is logged once
            return
        try:
            flushed_end = await asyncio.get_running_loop().run_in_executor(self._thread, store.flush)
        except (OSError, StoreError) as error:
            self._failed = True
            log.error("the commit log cannot be flushed; sends are refused until a restart", error=str(error))
            return
        store.dispatch_pending()  # with SYNC_FLUSH readers see a message only now
        self._ctx.pending_sends.flushed(flushed_end)

    async def _expire_answers(self) -> None:
        pending = self._ctx.pending_sends
        while True:
            await asyncio.sleep(EXPIRE_TICK_S)
            if pending.expires_in_s is not None:
                pending.expire()


class QueueFlushService:
    """Writes queues, index and checkpoint to disk, so that recovery after a crash is short."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._flushed_end = ctx.store.dispatched_end
        self._failing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush-queues")

    async def run(self) -> None:
        try:
            await self._flush_queues()
        finally:
            self._thread.shutdown()  # the store closes after this

    async def _flush_queues(self) -> None:
        loop = asyncio.get_running_loop()
        thorough_at = loop.time()
        while True:
            settings = self._ctx.conf.store
            await asyncio.sleep(settings.queue_flush_interval_ms / 1000)
            thorough = loop.time() - thorough_at >= settings.queue_flush_thorough_interval_ms / 1000
            new_bytes = self._ctx.store.dispatched_end - self._flushed_end
            # A record takes at least a hundred bytes of log and twenty of a queue.
            enough = new_bytes // 100 >= settings.queue_flush_least_pages * QUEUE_UNITS_PER_PAGE
            if new_bytes and (enough or thorough or self._ctx.store.queues_failed):
                await self._flush(thorough=thorough or self._ctx.store.queues_failed)
            if thorough:
                thorough_at = loop.time()

    async def _flush(self, *, thorough: bool) -> None:
        store = self._ctx.store
        end = store.dispatched_end
        try:
            loop = asyncio.get_running_loop()
            complete = await loop.run_in_executor(self._thread, partial(store.flush_queues, thorough=thorough))
            await loop.run_in_executor(self._thread, store.save_checkpoint)
        except (OSError, StoreError) as error:
            if not self._failing:
                log.error("queues or checkpoint cannot be written; trying again", error=str(error))
            self._failing = True
            return
        self._failing = False
        if complete:
            self._flushed_end = end
