import asyncio
from types import SimpleNamespace

import pytest

from twinlog.broker.deferred import durable


@pytest.mark.parametrize(("flushed_end", "log_end"), [(100, 120), (60, 60)])
async def test_progress_waits_for_the_flush_but_not_for_what_was_cut_off(monkeypatch, flushed_end, log_end):
    monkeypatch.setattr(durable, "_POLL_S", 0)
    store = SimpleNamespace(flushed_end=50, log_end=120)
    waiting = asyncio.create_task(durable.until_flushed(store, 100))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    store.flushed_end, store.log_end = flushed_end, log_end
    async with asyncio.timeout(5):
        await waiting
