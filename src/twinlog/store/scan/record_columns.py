"""The fields of many records as columns, one numpy array per field.

What it trades: `decode_message` of the wire package is the definition of a valid record. This module checks the same
lengths for thousands of records at a time, and does not look inside the properties. Only the rare fields behind an
IPv6 host are read record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinlog.store.scan.stop import Stop, StopReason
from twinlog.store.scan.topic_columns import number_topics
from twinlog.store.topic_name import decode_topic
from twinlog.wire.record_layout import (
    FIELD_AT,
    HEAD_BYTES,
    HEAD_NUMPY_FIELDS,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    V6_EXTRA_BYTES,
)
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

HEAD_TYPE = np.dtype(HEAD_NUMPY_FIELDS)  # of a record with IPv4 hosts
_ONE_HEAD = np.dtype((np.void, HEAD_BYTES))
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
_NUMBERS = [name for name, kind in HEAD_NUMPY_FIELDS if kind != "V8"]
_BEHIND_A_HOST = ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_length")


@dataclass(slots=True)
class ScannedRecords:
    """Valid records in log order, one array per field; `*_at` are positions in `buffer`."""

    buffer: memoryview
    position: np.ndarray
    physical_offset: np.ndarray
    size: np.ndarray
    version: np.ndarray
    body_crc: np.ndarray
    queue_id: np.ndarray
    flag: np.ndarray
    queue_offset: np.ndarray
    sys_flag: np.ndarray
    born_timestamp: np.ndarray
    store_timestamp: np.ndarray
    reconsume_times: np.ndarray
    prepared_transaction_offset: np.ndarray
    body_at: np.ndarray
    body_length: np.ndarray
    topic_at: np.ndarray
    topic_length: np.ndarray
    properties_at: np.ndarray
    properties_length: np.ndarray
    topic_number: np.ndarray  # which of `topics`
    topics: list[str]
    stop: Stop | None = None  # set on the last batch of a scan

    def __len__(self) -> int:
        return len(self.position)

    def select(self, rows: np.ndarray | slice) -> ScannedRecords:
        """The same columns for some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return ScannedRecords(buffer=self.buffer, topics=self.topics, stop=self.stop, **columns)


_AS_STORED = (
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
_COLUMNS = tuple(name for name in ScannedRecords.__dataclass_fields__ if name not in ("buffer", "topics", "stop"))


def columns_at(
    view: memoryview, position: np.ndarray, end: int, base: int, check_offset: bool
) -> tuple[ScannedRecords, Stop | None]:
    """The columns of the records at these positions, up to the first whose fields do not agree, and that one."""
    heads = gather_heads(view, position, end)
    fields = {name: heads[name].astype(heads[name].dtype.newbyteorder("=")) for name in _NUMBERS}
    size = fields["size"].astype(np.int64)
    extra = np.zeros(len(position), np.int64)
    if len(position) and bool(np.any(fields["sys_flag"] & _HOST_BITS)):
        extra = _shift_behind_v6(view, position, size, fields)
    version = np.where(fields["magic"] == MAGIC_V2, 2, 1)
    body_length = fields["body_length"].astype(np.int64)
    body_at = position + HEAD_BYTES + extra
    parts = _find_parts(np.frombuffer(view, np.uint8, end), position, size, version, body_at, body_length)
    records = ScannedRecords(
        buffer=view,
        position=position,
        physical_offset=position + base,
        size=size,
        version=version,
        body_at=body_at,
        body_length=body_length,
        topic_at=parts.topic_at,
        topic_length=parts.topic_length,
        properties_at=parts.properties_at,
        properties_length=parts.properties_length,
        topic_number=np.zeros(len(position), np.int64),
        topics=[],
        **_as_stored(fields),
    )
    good = parts.fit
    if check_offset:
        good = good & (fields["physical_offset"] == records.physical_offset)
    stop = None
    if not good.all():
        row = int(np.argmin(good))
        stop = _bad_row(records, row, int(fields["physical_offset"][row]) if check_offset else None)
        records = records.select(slice(0, row))
    row = _name_topics(records)
    if row is not None:
        stop = Stop(int(records.position[row]), StopReason.TOPIC)
        records = records.select(slice(0, row))
    return records, stop


def columns_of_heads(
    view: memoryview, position: np.ndarray, base: int, heads: np.ndarray, topics: list[str], topic_number: np.ndarray
) -> ScannedRecords:
    """The columns of records that were just written at these positions, with IPv4 hosts: nothing needs a check."""
    fields = {name: heads[name].astype(heads[name].dtype.newbyteorder("=")) for name in _NUMBERS}
    size, body_length = fields["size"].astype(np.int64), fields["body_length"].astype(np.int64)
    version = np.where(fields["magic"] == MAGIC_V2, 2, 1)
    topic_length = np.array([len(topic.encode()) for topic in topics], np.int64)[topic_number]
    body_at = position + HEAD_BYTES
    topic_at = body_at + body_length + version
    properties_at = topic_at + topic_length + 2
    return ScannedRecords(
        buffer=view,
        position=position,
        physical_offset=position + base,
        size=size,
        version=version,
        body_at=body_at,
        body_length=body_length,
        topic_at=topic_at,
        topic_length=topic_length,
        properties_at=properties_at,
        properties_length=position + size - properties_at,
        topic_number=topic_number,
        topics=topics,
        **_as_stored(fields),
    )


def _as_stored(fields: dict[str, np.ndarray]) -> dict[str, Any]:
    """The columns that are fields of the record as they are, under the same names."""
    return {name: fields[name] for name in _AS_STORED}


class _Parts(NamedTuple):
    """Where topic and properties stand; `fit` is False in rows whose lengths do not add up to the record's size."""

    topic_at: np.ndarray
    topic_length: np.ndarray
    properties_at: np.ndarray
    properties_length: np.ndarray
    fit: np.ndarray


def _find_parts(
    data: np.ndarray,
    position: np.ndarray,
    size: np.ndarray,
    version: np.ndarray,
    body_at: np.ndarray,
    body_length: np.ndarray,
) -> _Parts:
    record_end, topic_length_at = position + size, body_at + body_length
    fit = (body_length >= 0) & (topic_length_at + version + 2 <= record_end)
    safe = np.where(fit, topic_length_at, position)  # rows that failed are read somewhere harmless
    first = data[safe].astype(np.int8)
    topic_length = np.where(version == 1, first, (first.astype(np.int64) << 8) | data[safe + 1])
    topic_at = topic_length_at + version
    properties_length_at = topic_at + topic_length
    fit &= (topic_length >= 0) & (properties_length_at + 2 <= record_end)
    safe = np.where(fit, properties_length_at, position)
    properties_length = (data[safe].astype(np.int8).astype(np.int64) << 8) | data[safe + 1]
    fit &= (properties_length >= 0) & (properties_length_at + 2 + properties_length == record_end)
    return _Parts(topic_at, topic_length, properties_length_at + 2, properties_length, fit)


def _bad_row(records: ScannedRecords, row: int, stored_offset: int | None) -> Stop:
    """What is wrong with this record: it carries another physical offset than its own, or its lengths do not fit."""
    position = int(records.position[row])
    if stored_offset in (None, int(records.physical_offset[row])):
        return Stop(position, StopReason.LENGTHS)
    return Stop(position, StopReason.OFFSET, str(stored_offset))


def gather_heads(view: memoryview, position: np.ndarray, end: int) -> np.ndarray:
    """The fixed parts at these positions. They are gathered as plain bytes: numpy copies a record field by field."""
    if not len(position):
        return np.zeros(0, HEAD_TYPE)
    starts = end - HEAD_BYTES + 1
    return np.ndarray((starts,), _ONE_HEAD, buffer=view, strides=(1,))[position].view(HEAD_TYPE)


def _shift_behind_v6(
    view: memoryview, position: np.ndarray, size: np.ndarray, fields: dict[str, np.ndarray]
) -> np.ndarray:
    """Read the fields behind an IPv6 host again, where they really are; returns the bytes that hosts add."""
    born = np.where(fields["sys_flag"] & BORN_HOST_V6, V6_EXTRA_BYTES, 0).astype(np.int64)
    store = np.where(fields["sys_flag"] & STORE_HOST_V6, V6_EXTRA_BYTES, 0).astype(np.int64)
    for row in np.flatnonzero(born + store):
        fits = size[row] >= RECORD_BYTES_MIN + born[row] + store[row]
        for name in _BEHIND_A_HOST:
            shift = born[row] + (store[row] if name != "store_timestamp" else 0)
            dtype = HEAD_TYPE[name]
            at = int(position[row] + FIELD_AT[name] + shift)
            data = bytes(view[at : at + dtype.itemsize])
            fields[name][row] = int.from_bytes(data, "big", signed=True) if fits else -1
    return born + store


def _name_topics(batch: ScannedRecords) -> int | None:
    """Fill in the topics; returns the first record with an invalid topic."""
    names, batch.topic_number = number_topics(batch.buffer, batch.topic_at, batch.topic_length)
    bad: list[int] = []
    for number, name in enumerate(names):
        topic = decode_topic(name)
        batch.topics.append(topic or "")
        if topic is None:
            bad.append(int(np.argmax(batch.topic_number == number)))
    return min(bad, default=None)
