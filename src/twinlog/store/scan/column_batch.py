"""Thousands of records as one batch of dispatch requests, which stays columns as long as possible.

What it trades: `requests_of` makes one object per record and reads each record's properties. The records of a busy log
come from few programs and have their properties at the same positions. So here the properties of all records of one
length become a matrix, each row is compared with the first, and tags and keys are read from its columns. With records
of another layout, or of a rare kind (transactions, delays, inner batches), `columns` is None and the dispatchers
iterate the batch as a plain sequence of requests. A property test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.property_scan import value_places
from twinlog.store.scan.key_hash import hash_prefix, hash_rows
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.replay import requests_of
from twinlog.wire.java_text import tags_code
from twinlog.wire.values.sys_flag import INNER_BATCH, TRANSACTION_MASK

ROWS_MIN = 64  # below this, plain requests are faster
_LAYOUTS_MAX = 16
_PAIR_END, _SPACE = 2, 0x20
_WANTED = (b"TAGS", b"KEYS", b"UNIQ_KEY")


class Columns(NamedTuple):
    """What queues and index need, one row per record; the index columns have one row per key."""

    tags_code: np.ndarray
    key_hash: np.ndarray
    key_row: np.ndarray


QueueRun = tuple[str, int, int, int, int]
"""topic, queue id, first row, row behind the last, queue offset of the first"""


class ColumnBatch(Sequence[DispatchRequest]):
    """Scanned records as dispatch requests. `columns` is None when the requests must be read one by one.

    `runs` says which rows are of one queue, one after the other, if that is known.
    """

    def __init__(
        self, records: ScannedRecords, delay_levels: DelayLevels, runs: Sequence[QueueRun] | None = None
    ) -> None:
        self.records = records
        self.runs = runs
        self._delay_levels = delay_levels

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> DispatchRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[DispatchRequest]: ...
    def __getitem__(self, index: int | slice) -> DispatchRequest | list[DispatchRequest]:
        if isinstance(index, int) and "requests" not in self.__dict__:
            row = range(len(self))[index]
            return requests_of(self.records.select(slice(row, row + 1)), self._delay_levels)[0]
        return self.requests[index]

    def __iter__(self) -> Iterator[DispatchRequest]:
        return iter(self.requests)

    @cached_property
    def requests(self) -> list[DispatchRequest]:
        return requests_of(self.records, self._delay_levels)

    @cached_property
    def columns(self) -> Columns | None:
        return _columns(self.records) if len(self.records) >= ROWS_MIN else None

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return int(self.records.physical_offset[-1] + self.records.size[-1])


class _Layout(NamedTuple):
    """Where the values of the three properties are in a properties text; an absent one is empty."""

    tags: slice
    keys: slice
    uniq_key: slice


def _columns(records: ScannedRecords) -> Columns | None:
    if bool(np.any(records.sys_flag & (TRANSACTION_MASK | INNER_BATCH))) or SCHEDULE_TOPIC in records.topics:
        return None
    prefixes = np.array([hash_prefix(topic) for topic in records.topics], np.uint32)[records.topic_number]
    return property_columns(records.buffer, records.properties_at, records.properties_length, prefixes)


def property_columns(
    buffer: bytes | memoryview, at: np.ndarray, length: np.ndarray, prefixes: np.ndarray
) -> Columns | None:
    """The columns of records whose properties are in `buffer`, with the hash of each one's `topic#`."""
    tags = np.zeros(len(at), np.int64)
    hashes: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    lengths = _distinct(length)
    if len(lengths) > _LAYOUTS_MAX:
        return None
    for one in lengths:
        where = np.flatnonzero(length == one)
        if one == 0:
            continue
        matrix = _matrix(buffer, at[where], one)
        layout = _layout(matrix)
        if layout is None:
            return None
        if layout.tags.stop > layout.tags.start:
            tags[where] = _tags_codes(matrix[:, layout.tags])
        for part in (layout.uniq_key, layout.keys):
            if part.stop > part.start:
                values = matrix[:, part]
                if part is layout.keys and bool((values == _SPACE).any()):
                    return None  # several keys in one property
                hashes.append(hash_rows(prefixes[where], values))
                rows.append(where)
    if not hashes:
        return Columns(tags, np.zeros(0, np.int64), np.zeros(0, np.int64))
    key_row = np.concatenate(rows)
    order = np.argsort(key_row, kind="stable")  # of one record, the unique key stays first
    return Columns(tags, np.concatenate(hashes)[order], key_row[order])


def _matrix(buffer: bytes | memoryview, at: np.ndarray, length: int) -> np.ndarray:
    """The properties at these positions, which all have `length` bytes, a row each."""
    windows = np.ndarray((len(buffer) - length + 1,), f"V{length}", buffer=buffer, strides=(1,))
    return windows[at].view(np.uint8).reshape(len(at), length)


def _layout(matrix: np.ndarray) -> _Layout | None:
    """Where the values are, if all rows have them where the first row has them and nothing is unusual."""
    first, low, high = matrix[0], matrix.min(axis=0), matrix.max(axis=0)
    fixed = first <= _PAIR_END  # separators, and below also names; everything else is a value
    if bool((high >= 0x80).any()) or bool((low[~fixed] <= _PAIR_END).any()):
        return None  # a byte is not a UTF-16 unit, which hashes are made of; or a separator is elsewhere
    places = value_places(first.tobytes())
    if places is None:
        return None
    for name, value in places.items():
        fixed[value.start - 1 - len(name) : value.start] = True
    if bool((low[fixed] != high[fixed]).any()):
        return None
    return _Layout(*(places.get(name, slice(0, 0)) for name in _WANTED))


def _tags_codes(values: np.ndarray) -> np.ndarray:
    """The code of each row's tags; most logs have few distinct ones."""
    if bool((values == values[0]).all()):
        return np.full(len(values), tags_code(values[0].tobytes().decode()), np.int64)
    texts = np.ascontiguousarray(values).view(f"V{values.shape[1]}").reshape(-1)
    distinct, numbers = np.unique(texts, return_inverse=True)
    codes = [tags_code(bytes(text).decode()) for text in distinct]
    return np.array(codes, np.int64)[numbers.reshape(-1)]


def _distinct(values: np.ndarray) -> list[int]:
    """The values without repetition; in most batches there is one."""
    return [int(values[0])] if bool((values == values[0]).all()) else np.unique(values).tolist()
