"""A property filter applied to a message: first to its bitmap in the queue, then to its properties in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinlog.broker.pulls.filters.bloom import has_bits
from twinlog.broker.pulls.filters.sql92 import PropertyFilter
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queues.consume_queue_ext import ExtUnit
from twinlog.store.queues.read import Accept, AcceptRecord
from twinlog.store.queues.unit_filters import ExtTest, PropertyTest


@dataclass(slots=True)
class MessageFilter:
    """Which messages a pull wants; None members accept everything."""

    accept: Accept | None = None  # checks a queue unit
    accept_record: AcceptRecord | None = None  # checks the record it points to
    wakes: Callable[[DispatchRequest], bool] | None = None  # checks a message that arrives


def select(
    wanted: PropertyFilter, *, born_ms: int = 0, bits: tuple[int, ...] | None = None, bitmap_bytes: int = 0
) -> MessageFilter:
    """The messages that `wanted` matches; `bits` stand for it in bitmaps made after `born_ms`."""

    def may_match(unit: ExtUnit) -> bool:
        # A bitmap that is older than the filter, or of another size, does not contain its bits.
        if bits is None or unit.store_timestamp <= born_ms or len(unit.bitmap) != bitmap_bytes:
            return True
        return has_bits(unit.bitmap, bits)

    matches = wanted.matches_text
    return MessageFilter(
        accept=ExtTest(may_match) if bits is not None else None,
        accept_record=PropertyTest(matches, wanted.look_at),
        wakes=lambda message: matches(bytes(message.properties_bytes)),
    )
