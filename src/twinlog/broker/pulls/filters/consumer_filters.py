"""The property filters of consumer groups: registered by heartbeats, compiled once, used by pulls and bitmaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.message_filter import MessageFilter, select
from twinlog.broker.pulls.filters.sql92 import FilterSyntaxError, PropertyFilter, compile_sql92
from twinlog.metadata.filters import BloomData, ConsumerFilter, FilterTable, row_length
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import SubscriptionData
from twinlog.wire.values.filter_expression import is_tag_type

log = get_logger(__name__)

PRESUMED_SILENCE_MS = 30_000  # the last heartbeat of a consumer was at most this long before the start


class FilterLimit(NamedTuple):
    """How long all filters may be together, and what is called with group and topic of one that finds no room."""

    length_max: int
    refused: Callable[[str, str], None]


def _ignore(group: str, topic: str) -> None: ...


NO_LIMIT = FilterLimit(1 << 62, _ignore)


class ConsumerFilters:
    """Filter data with its compiled expressions.

    Invariant: every row of the table compiles and carries bits of this Bloom filter.
    """

    def __init__(self, table: FilterTable, bloom: BloomFilter, now_ms: int) -> None:
        self.table = table
        self.bloom = bloom
        self._by_topic: dict[str, list[tuple[tuple[int, ...], PropertyFilter]]] = {}
        self._check_loaded(now_ms)

    # -- heartbeats --------------------------------------------------------------------------------

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], now_ms: int, limit: FilterLimit = NO_LIMIT
    ) -> None:
        """Note the filters of all subscriptions of a group; its filters on other topics are dead from now on."""
        topics: set[str] = set()
        for data in subscriptions:
            topics.add(data.topic)
            if not is_tag_type(data.expression_type) and data.sub_string:
                self._register_one(group, data, now_ms, limit)
        if self.table.rows:
            for row in self.table.of_group(group):
                if row.topic not in topics and not row.is_dead:
                    self._put(msgspec.structs.replace(row, dead_time=now_ms))

    def unregister(self, group: str, now_ms: int) -> None:
        """The group's last consumer left."""
        for row in self.table.of_group(group):
            if not row.is_dead:
                self._put(msgspec.structs.replace(row, dead_time=now_ms))

    def clean(self, now_ms: int, expiry_ms: int) -> int:
        """Remove filters that have been dead for `expiry_ms`; returns how many."""
        cleaned = self.table.clean(now_ms - expiry_ms)
        if cleaned:
            self._by_topic.clear()
        return cleaned

    # -- pulls and dispatch ------------------------------------------------------------------------

    def of_group(self, group: str, topic: str) -> MessageFilter:
        """The registered filter of a group on a topic; everything when it has none."""
        row = self.table.get(topic, group)
        if row is None:
            return MessageFilter()
        bits = row.bloom_filter_data.bit_pos if row.bloom_filter_data is not None else None
        wanted = compile_sql92(row.expression)
        return select(wanted, born_ms=row.born_time, bits=bits, bitmap_bytes=self.bloom.byte_count)

    def of_request(self, group: str, topic: str, expression: str) -> MessageFilter:
        """The filter that a pull carries; everything when it does not compile.

        Java: such an expression is refused by CHECK_CLIENT_CONFIG and heartbeats, but not here.
        """
        try:
            return select(compile_sql92(expression))
        except FilterSyntaxError as error:
            log.warning("a pull's expression does not compile", group=group, topic=topic, error=str(error))
            return MessageFilter()

    def of_topic(self, topic: str) -> list[tuple[tuple[int, ...], PropertyFilter]]:
        """(bits, filter) of every group that has a filter on the topic, dead ones included."""
        found = self._by_topic.get(topic)
        if found is None:
            rows = self.table.of_topic(topic).values()
            found = [(r.bloom_filter_data.bit_pos, compile_sql92(r.expression)) for r in rows if r.bloom_filter_data]
            if found:
                self._by_topic[topic] = found
        return found

    # -- rows --------------------------------------------------------------------------------------

    def _register_one(self, group: str, data: SubscriptionData, now_ms: int, limit: FilterLimit) -> None:
        known = self.table.get(data.topic, group)
        if known is not None and data.sub_version <= known.client_version:
            if data.sub_version == known.client_version and known.is_dead:
                self._put(msgspec.structs.replace(known, dead_time=0))
            return
        same = known is not None and (known.expression, known.expression_type) == (
            data.sub_string,
            data.expression_type,
        )
        if known is not None and same:
            self._put(msgspec.structs.replace(known, client_version=data.sub_version, dead_time=0))
            return
        try:
            compile_sql92(data.sub_string)
        except FilterSyntaxError as error:
            # The pulls of this group are answered with FILTER_DATA_NOT_EXIST.
            log.warning("a filter does not compile", group=group, topic=data.topic, error=str(error))
            self._remove(data.topic, group)
            return
        if not self._has_room(row_length(group, data.topic, data.sub_string), limit):
            limit.refused(group, data.topic)
            self._remove(data.topic, group)
            return
        bloom = BloomData(self.bloom.positions(f"{group}#{data.topic}"), self.bloom.bits)
        kind, version = data.expression_type, data.sub_version
        self._put(ConsumerFilter(group, data.topic, data.sub_string, kind, now_ms, 0, bloom, version))

    def _has_room(self, length: int, limit: FilterLimit) -> bool:
        """Whether one more filter fits; those that have been dead for longest make room for it."""
        if self.table.length + length <= limit.length_max:
            return True
        rows = (row for filters in self.table.rows.values() for row in filters.values() if row.is_dead)
        dead = sorted(rows, key=lambda row: row.dead_time)
        # A tenth of all at once, so that not every heartbeat looks at all rows.
        wanted = limit.length_max - max(length, limit.length_max // 10)
        for row in dead:
            if self.table.length <= wanted:
                break
            self._remove(row.topic, row.consumer_group)
        return self.table.length + length <= limit.length_max

    def _remove(self, topic: str, group: str) -> None:
        self.table.remove(topic, group)
        self._by_topic.pop(topic, None)

    def _put(self, row: ConsumerFilter) -> None:
        self.table.put(row)
        self._by_topic.pop(row.topic, None)

    def _check_loaded(self, now_ms: int) -> None:
        """Check the rows of the file, all dead so far; a Bloom filter of another size makes them useless."""
        rows = [row for filters in self.table.rows.values() for row in filters.values()]
        if any(not self._fits(row.bloom_filter_data) for row in rows):
            log.info("the Bloom filter has another size now; the consumers' filters are made anew", filters=len(rows))
            self.table.clear()
            return
        for row in rows:
            try:
                compile_sql92(row.expression)
            except FilterSyntaxError as error:
                log.warning(
                    "a saved filter does not compile", group=row.consumer_group, topic=row.topic, error=str(error)
                )
                self.table.remove(row.topic, row.consumer_group)
                continue
            if not row.dead_time:
                dead_time = max(now_ms - PRESUMED_SILENCE_MS, row.born_time)
                self.table.put(msgspec.structs.replace(row, dead_time=dead_time))

    def _fits(self, data: BloomData | None) -> bool:
        return data is not None and self.bloom.fits(data.bit_num, data.bit_pos)
