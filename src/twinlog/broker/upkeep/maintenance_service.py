"""Periodic work: old segments, silent clients, expired locks and filters."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from twinlog.broker.clients.client_handlers import expire_clients
from twinlog.metadata.save_service import SaveService
from twinlog.store.errors import StoreError
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.metadata.persisted import PersistedTable
    from twinlog.store.retention import Cleaned

log = get_logger(__name__)
CLIENT_SCAN_S = 10.0
WALL_STEP_MS = 1_000
FIRST_CLEANING_S = 60.0
FILTER_SAVE_S = 10.0


class MaintenanceService:
    """Work that is due after fixed periods, independent of requests."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._wall_ahead_ms = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clean-queues")

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ctx.fence.run("ClientScan", self._scan_clients), name="ClientScan")
                tasks.create_task(self._clean_files(), name="clean-files")
        finally:
            self._thread.shutdown()  # the store closes after this

    async def _scan_clients(self) -> None:
        ctx = self._ctx
        while True:
            await asyncio.sleep(CLIENT_SCAN_S)
            now_ms = ctx.clock_ms()
            self.check_clocks()
            expire_clients(ctx)
            ctx.locks.expire(now_ms)
            ctx.consumer_filters.clean(now_ms, ctx.settings.filter_expiry_ms)

    def check_clocks(self) -> None:
        """Warn when the wall clock was set: timers keep to the steady clock until a restart."""
        ahead_ms = self._ctx.wall_ms() - self._ctx.clock_ms()
        if abs(ahead_ms - self._wall_ahead_ms) >= WALL_STEP_MS:
            self._wall_ahead_ms = ahead_ms
            text = "the wall clock was set; delays and timers keep to the steady clock until a restart"
            log.warning(text, wall_ahead_ms=ahead_ms)

    async def _clean_files(self) -> None:
        ctx = self._ctx
        await asyncio.sleep(FIRST_CLEANING_S)
        while True:
            try:
                cleaned = await self.clean()
            except (OSError, StoreError) as error:
                log.error("old files cannot be deleted; trying again", error=str(error))
            else:
                if cleaned.segments:
                    log.info("old segments deleted", segments=cleaned.segments, log_start=ctx.store.log_start)
            await asyncio.sleep(ctx.conf.store.clean_interval_ms / 1000)

    async def clean(self) -> Cleaned:
        """Delete old segments, and beside the loop what pointed to them: thousands of queues may be searched."""
        store = self._ctx.store
        cleaned = store.drop_expired(self._ctx.wall_ms())
        if cleaned.segments:
            await asyncio.get_running_loop().run_in_executor(self._thread, store.clean_queues)
        return cleaned


def save_service(ctx: BrokerContext) -> SaveService:
    """The service that keeps the metadata files up to date, with this broker's periods."""
    periods_s: dict[PersistedTable, float] = {
        ctx.offsets: ctx.settings.offset_flush_interval_ms / 1000,
        ctx.filters: FILTER_SAVE_S,
    }

    def report(table: PersistedTable, error: OSError) -> None:
        log.error("a metadata file cannot be written; trying again", table=type(table).__name__, error=str(error))

    return SaveService((ctx.topics, ctx.groups, ctx.request_modes, ctx.tables.accounts), periods_s, report)
