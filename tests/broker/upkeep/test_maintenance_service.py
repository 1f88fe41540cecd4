"""Old files go while the broker serves."""

from __future__ import annotations

import asyncio
import threading

from tests.broker.contexts import open_context

from twinlog.broker.upkeep.maintenance_service import MaintenanceService
from twinlog.store.retention import Cleaned


async def test_queues_are_cleaned_beside_the_loop(tmp_path):
    with open_context(tmp_path) as ctx:
        begun, released = threading.Event(), threading.Event()

        def clean_queues() -> int:
            begun.set()
            released.wait()
            return 0

        ctx.store.drop_expired = lambda now_ms: Cleaned(1, 1024, "test")
        ctx.store.clean_queues = clean_queues
        cleaning = asyncio.create_task(MaintenanceService(ctx).clean())
        async with asyncio.timeout(10):
            while not begun.is_set():
                await asyncio.sleep(0.001)
        assert not cleaning.done()
        released.set()
        assert (await cleaning).segments == 1


async def test_queues_are_left_alone_when_no_segment_was_deleted(tmp_path):
    with open_context(tmp_path) as ctx:
        ctx.store.clean_queues = None  # would raise if it were called
        assert (await MaintenanceService(ctx).clean()).segments == 0
