"""Property filters that consumers registered: consumerFilter.json. The data only; the broker compiles it.

A filter is kept for a while after its last consumer left, at `dead_time`. Messages stored meanwhile have its result in
their bitmap, so the filter is not evaluated for each of them when a consumer returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import PersistedTable, encode_object, encode_rows
from twinlog.wire.numbers import Int, Long

FILE_NAME = "consumerFilter.json"
_ROW_LENGTH = 512  # of a row besides its texts, in bytes of memory


class BloomData(msgspec.Struct, rename="camel", frozen=True):
    """The bits that stand for one filter in a message's bitmap of `bit_num` bits."""

    bit_pos: tuple[Int, ...] = ()
    bit_num: Int = 0


class ConsumerFilter(msgspec.Struct, rename="camel", frozen=True):
    """One group's expression on one topic."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str = "SQL92"
    born_time: Long = 0
    dead_time: Long = 0
    bloom_filter_data: BloomData | None = None
    client_version: Long = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


class TopicFilters(msgspec.Struct, rename="camel"):
    topic: str = ""
    group_filter_data: dict[str, ConsumerFilter] = {}


class FiltersFile(msgspec.Struct, rename="camel"):
    filter_data_by_topic: dict[str, TopicFilters] | None = None


class FilterTable(PersistedTable):
    """Topic -> group -> filter."""

    def __init__(self, file: FileWithBackup | None = None, now_ms: int = 0, epoch: str | None = None) -> None:
        super().__init__(file, now_ms, epoch)
        self._rows: dict[str, dict[str, ConsumerFilter]] = {}
        self.length = 0  # of all rows, by `row_length`

    @property
    def rows(self) -> Mapping[str, Mapping[str, ConsumerFilter]]:
        return self._rows

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        return self._rows.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Mapping[str, ConsumerFilter]:
        return self._rows.get(topic, {})

    def of_group(self, group: str) -> list[ConsumerFilter]:
        return [filters[group] for filters in self._rows.values() if group in filters]

    def put(self, row: ConsumerFilter) -> None:
        if (before := self.get(row.topic, row.consumer_group)) != row:
            self.length += _length(row) - (_length(before) if before is not None else 0)
            self._rows[row.topic] = {**self._rows.get(row.topic, {}), row.consumer_group: row}
            self._touch(row.topic, row.consumer_group)

    def remove(self, topic: str, group: str) -> None:
        filters = self._rows.get(topic, {})
        if group in filters:
            self.length -= _length(filters[group])
            rest = {name: row for name, row in filters.items() if name != group}
            if rest:
                self._rows[topic] = rest
            else:
                del self._rows[topic]
            self._touch(topic, group)

    def clean(self, dead_before_ms: int) -> int:
        """Remove filters whose consumers left before that time; how many there were."""
        old = [
            row
            for rows in self._rows.values()
            for row in rows.values()
            if row.is_dead and row.dead_time < dead_before_ms
        ]
        for row in old:
            self.remove(row.topic, row.consumer_group)
        return len(old)

    def clear(self) -> None:
        if self._rows:
            self._rows = {}
            self.length = 0
            self.changed()

    def decode_file(self, data: bytes) -> FiltersFile:
        return decode_json(data, FiltersFile)

    def restore(self, loaded: FiltersFile) -> None:
        by_topic = loaded.filter_data_by_topic or {}
        self._rows = {topic: rows.group_filter_data for topic, rows in by_topic.items() if rows.group_filter_data}
        self.length = sum(_length(row) for rows in self._rows.values() for row in rows.values())

    def encode_file(self) -> Iterable[bytes]:
        rows = {topic: TopicFilters(topic, dict(filters)) for topic, filters in self._rows.items()}
        return encode_object([("filterDataByTopic", encode_rows(rows))])

    def _touch(self, topic: str, group: str) -> None:
        key = f"{topic}@{group}"
        if self.get(topic, group) is None:
            self.revisions.remove(key)
        else:
            self.revisions.touch(key)
        self.changed()


def row_length(group: str, topic: str, expression: str) -> int:
    """Characters that a filter takes, with about what a row takes besides."""
    return len(group) + len(topic) + len(expression) + _ROW_LENGTH


def _length(row: ConsumerFilter) -> int:
    return row_length(row.consumer_group, row.topic, row.expression)
