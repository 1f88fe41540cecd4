"""What follows an append, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.stored import bodies, put, stored_context

from twinlog.broker.context import BrokerContext
from twinlog.store.log.append import Draft


def steps_of(ctx: BrokerContext) -> list[str]:
    """A list that grows by the name of each step from now on."""
    steps: list[str] = []
    ctx.wake_replicas = lambda: steps.append(f"replicas get {len(bodies(ctx))} visible")
    ctx.expect_reports = lambda: steps.append("reports are expected")
    ctx.store.on_arrival.append(lambda batch: steps.append(f"readers see {len(batch)}"))
    ctx.pending_sends.on_flush_wanted.append(lambda: steps.append("the flush is asked for"))
    return steps


def test_replicas_get_appended_records_before_readers_see_them(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        steps = steps_of(ctx)
        for _ in range(2):
            ctx.store.append(Draft("T", 0, b"x"))
        ctx.publish_appends()
        assert steps == ["replicas get 0 visible", "readers see 2", "reports are expected"]


def test_appends_outside_a_send_ask_for_the_synchronous_flush_first(tmp_path: Path):
    with stored_context(tmp_path, flushDiskType="SYNC_FLUSH") as ctx:
        steps = steps_of(ctx)
        put(ctx)
        assert steps == ["the flush is asked for", "replicas get 0 visible", "reports are expected"]
        ctx.store.flush()
        ctx.publish_appends()
        assert steps[3:] == ["replicas get 0 visible", "readers see 1", "reports are expected"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_publishing_nothing_wakes_no_reader_and_no_flush(tmp_path: Path, flush: str):
    with stored_context(tmp_path, flushDiskType=flush) as ctx:
        steps = steps_of(ctx)
        ctx.publish_appends()
        assert steps == ["replicas get 0 visible", "reports are expected"]
