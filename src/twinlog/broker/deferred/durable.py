"""Waiting for a flush: progress is saved only after the records that it counts are on disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.store.message_store import MessageStore

_POLL_S = 0.1


async def until_flushed(store: MessageStore, log_end: int) -> None:
    """Return once the log is durable before `log_end`; the flush service does it in its intervals.

    Bytes that a change of role has cut off meanwhile are not waited for.
    """
    while store.flushed_end < min(log_end, store.log_end):  # noqa: ASYNC110 - flushes end in a thread, without an event
        await asyncio.sleep(_POLL_S)
