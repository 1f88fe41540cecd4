"""Computes each message's filter bitmap before its queue unit is written (enableCalcFilterBitMap).

The bitmap has the bits of every consumer filter that the message matched, so a pull skips other messages without
reading them from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.broker.pulls.filters.bloom import set_bits
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.store.dispatch import DispatchRequest


class BitmapDispatcher:
    """The store's first dispatcher; messages of topics without filters get no bitmap."""

    def __init__(self, filters: ConsumerFilters) -> None:
        self._filters = filters

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        if not self._filters.table.rows:
            return
        for message in batch:
            of_topic = self._filters.of_topic(message.topic)
            if not of_topic:
                continue
            bitmap, properties = bytearray(self._filters.bloom.byte_count), bytes(message.properties_bytes)
            for bits, property_filter in of_topic:
                if property_filter.matches_text(properties):
                    set_bits(bitmap, bits)
            message.bitmap = bytes(bitmap)

    def flush(self) -> None:
        """Nothing is kept here."""
