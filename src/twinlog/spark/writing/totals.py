"""What a task wrote: its answer to the driver.

The process that commits a write imports this and little else: Spark starts it anew for each write.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from twinlog.wire.bodies import MessageQueue


@dataclass(slots=True)
class SendTotals:
    """What a task did: it stored `rows`; an earlier attempt had stored the `skipped` ones."""

    rows: int = 0
    skipped: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    unsafe: Counter[str] = field(default_factory=Counter)  # rows stored less safely than wished, by status
    last_offsets: dict[MessageQueue, int] = field(default_factory=dict)
