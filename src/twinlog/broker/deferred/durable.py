"""Progress is written down only after what it speaks of is on disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.store.message_store import MessageStore

_LOOK_S = 0.1


async def until_flushed(store: MessageStore, log_end: int) -> None:
    """Return once the log is durable before `log_end`; the flush service gets there within flush intervals.

    What a change of role has cut off meanwhile will never be, and is not waited for.
    """
    while store.flushed_end < min(log_end, store.log_end):  # noqa: ASYNC110 - flushes happen in a thread that tells nobody
        await asyncio.sleep(_LOOK_S)
