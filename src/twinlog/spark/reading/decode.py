"""Record bytes to Arrow columns, thousands of records at a time, without Python code per record.

What it trades: `wire.message.decode_message` is the definition of a record, and `store.scan` finds the records. This
module lays numpy and Arrow arrays over the same bytes; a property test holds the rows equal to decoded messages. Only
rare cases run per record: compressed bodies, inner batches, IPv6 hosts, ids of messages without a unique key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twinlog.spark.errors import BadRecord
from twinlog.spark.reading.property_columns import PropertyColumns, spans
from twinlog.spark.schema import Columns, arrow_schema, batch_of
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.wire.batch import decode_batch
from twinlog.wire.compression import decompress
from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message, encode_message
from twinlog.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from twinlog.wire.record_layout import FIELD_AT, V6_EXTRA_BYTES
from twinlog.wire.values import sys_flag

BATCH_ROWS_MAX = 8192
BATCH_BYTES_MAX = 8 * 1024 * 1024
_INNER = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
_COMPRESSION = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK
_MICROS_MAX = (1 << 63) // 1000 - 1
_PLAIN_INTS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "flag": "flag",
    "bodyCRC": "body_crc",
    "storeSize": "size",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
_HEX = np.frombuffer("".join(f"{n:02X}" for n in range(256)).encode(), np.uint8).reshape(256, 2)


class Decoder:
    """Makes Arrow batches with `columns` from scanned records; one decoder per partition."""

    def __init__(
        self,
        columns: Columns,
        *,
        broker_name: str,
        segment: str = "",
        inflates: bool = True,
        tags: Iterable[str] | None = None,
    ) -> None:
        """With `tags`, keeps only messages with one of them: a broker's filter compares hashes, which may collide."""
        self.schema = arrow_schema(columns)
        self._columns = columns
        self._constants = {"brokerName": broker_name, "segment": segment}
        self._broker_name = broker_name
        self._inflates = inflates
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())

    def decode(self, records: ScannedRecords) -> Iterator[pa.RecordBatch]:
        """The records as batches of limited size; each message of an inner batch becomes a row."""
        for part in _parts(self.unwrap(records)):
            batch = self._decode_part(part)
            if len(batch):
                yield batch

    def unwrap(self, records: ScannedRecords) -> ScannedRecords:
        """`records` with inner batches split into one record per message, unless they are read as stored."""
        if self._inflates and len(records) and bool((records.sys_flag & _INNER == _INNER).any()):
            return self._unwrapped(records)
        return records

    def _decode_part(self, records: ScannedRecords) -> pa.RecordBatch:
        one = _Part(records)
        if self._tags is not None:
            wanted = pc.call_function("is_in", [one.pairs.column(TAGS)], pc.SetLookupOptions(self._tags))
            keep = wanted.to_numpy(zero_copy_only=False)
            if not keep.all():
                records = records.select(keep)
                one = _Part(records)
        arrays = []
        for name in self._columns:
            if name in _PLAIN_INTS:
                column = getattr(records, _PLAIN_INTS[name])
                kind = self.schema.field(name).type
                arrays.append(pa.array(column.astype(kind.to_pandas_dtype(), copy=False), kind))
            elif name in self._constants:
                arrays.append(pa.repeat(pa.scalar(self._constants[name], pa.string()), len(records)))
            elif name == "body":
                arrays.append(self._bodies(one))
            elif name == "sysFlag":
                arrays.append(pa.array(self._flags(records).astype(np.int32, copy=False)))
            else:
                arrays.append(one.column(name))
        return batch_of(arrays, self.schema)

    def _flags(self, records: ScannedRecords) -> np.ndarray:
        flags = records.sys_flag
        if not self._inflates:
            return flags
        return np.where(flags & sys_flag.COMPRESSED, flags & ~_COMPRESSION, flags)

    def _bodies(self, part: _Part) -> pa.Array:
        records = part.records
        stored = part.spans(records.body_at, records.body_length, pa.binary())
        packed = np.flatnonzero(records.sys_flag & sys_flag.COMPRESSED) if self._inflates else ()
        if not len(packed):
            return stored
        inflated = pa.array([self._inflate(records, int(row), stored) for row in packed], pa.binary())
        place = np.arange(len(records))
        place[packed] = len(records) + np.arange(len(packed))
        return pa.concat_arrays([stored, inflated]).take(pa.array(place))

    def _inflate(self, records: ScannedRecords, row: int, stored: pa.Array) -> bytes:
        try:
            return decompress(stored[row].as_py(), int(records.sys_flag[row]))
        except WireError as error:
            hint = "read with decompress=false to get the bytes as they are stored"
            raise BadRecord(f"{self._where(records, row)}: the body cannot be decompressed: {error}; {hint}") from error

    def _where(self, records: ScannedRecords, row: int) -> str:
        topic = records.topics[int(records.topic_number[row])]
        place = f"topic {topic} broker {self._broker_name} queue {records.queue_id[row]}"
        return f"{place} offset {records.queue_offset[row]}"

    def _unwrapped(self, records: ScannedRecords) -> ScannedRecords:
        """The same messages, each encoded as a record of its own."""
        pieces: list[bytes] = []
        for row, (at, size) in enumerate(zip(records.position.tolist(), records.size.tolist(), strict=True)):
            data = bytes(records.buffer[at : at + size])
            if int(records.sys_flag[row]) & _INNER != _INNER:
                pieces.append(data)
                continue
            message = decode_message(data, check_crc=False)
            try:
                elements = decode_batch(message.decoded_body)
            except WireError as error:
                raise BadRecord(f"{self._where(records, row)}: an inner batch cannot be read: {error}") from error
            message.sys_flag &= ~(_INNER | _COMPRESSION)
            for element in elements:
                message.body, message.flag = element.body, element.flag
                message.properties = decode_properties(element.properties)
                pieces.append(encode_message(message))
                message.queue_offset += 1
        joined = b"".join(pieces)
        (found,) = scan(joined, 0, len(joined), 0, check_crc=False, check_offset=False, batch_records=len(pieces) + 1)
        return found


class _Part:
    """A few megabytes of records, with values that several columns share."""

    def __init__(self, records: ScannedRecords) -> None:
        self.records = records
        begin, end = 0, 0
        if len(records):
            begin = int(records.position[0])
            end = int(records.position[-1] + records.size[-1])
        self._begin = begin
        self._view = records.buffer[begin:end]
        self._data = pa.py_buffer(self._view)
        self._position = records.position - begin
        self._born_v6 = (records.sys_flag & sys_flag.BORN_HOST_V6) != 0
        self._store_v6 = (records.sys_flag & sys_flag.STORE_HOST_V6) != 0
        self._store_host_at = self._position + FIELD_AT["store_host"] + np.where(self._born_v6, V6_EXTRA_BYTES, 0)
        self._pairs: PropertyColumns | None = None

    def column(self, name: str) -> pa.Array:
        records = self.records
        match name:
            case "topic":
                return pa.array(records.topics, pa.string()).take(pa.array(records.topic_number))
            case "commitLogOffset":
                return pa.array(self._physical_offsets())
            case "bornTimestamp":
                return _timestamps(records.born_timestamp)
            case "storeTimestamp":
                return _timestamps(records.store_timestamp)
            case "bornHost":
                return self._hosts(self._position + FIELD_AT["born_host"], self._born_v6)
            case "storeHost":
                return self._hosts(self._store_host_at, self._store_v6)
            case "msgId":
                return self._ids()
            case "keys":
                return self.pairs.column(KEYS)
            case "tags":
                return self.pairs.column(TAGS)
            case "properties":
                return self.pairs.map_column()
        raise AssertionError(name)

    @property
    def pairs(self) -> PropertyColumns:
        if self._pairs is None:
            records = self.records
            self._pairs = PropertyColumns(self.spans(records.properties_at, records.properties_length, pa.binary()))
        return self._pairs

    def spans(self, at: np.ndarray, length: np.ndarray, kind: pa.DataType) -> pa.Array:
        return spans(self._data, at - self._begin, at - self._begin + length, kind)

    def _gather(self, at: np.ndarray, kind: str) -> np.ndarray:
        """The values of type `kind` at these positions, which need not be aligned."""
        if not len(at):
            return np.zeros(0, kind)
        starts = len(self._view) - np.dtype(kind).itemsize + 1
        return np.ndarray((starts,), kind, buffer=self._view, strides=(1,))[at]

    def _physical_offsets(self) -> np.ndarray:
        return self._gather(self._position + FIELD_AT["physical_offset"], ">i8").astype(np.int64)

    def _hosts(self, at: np.ndarray, is_v6: np.ndarray) -> pa.Array:
        """`host:port` of each row; few of them differ."""
        hosts = self._gather(at, ">u8").astype(np.uint64)
        if len(hosts) and not is_v6.any() and (hosts == hosts[0]).all():
            return pa.repeat(pa.scalar(_host_v4(int(hosts[0])), pa.string()), len(hosts))
        distinct, numbers = np.unique(hosts, return_inverse=True)
        texts = [_host_v4(int(host)) for host in distinct]
        numbers = numbers.reshape(-1)
        for row in np.flatnonzero(is_v6):
            numbers[row] = len(texts)
            texts.append(_host_v6(bytes(self._view[int(at[row]) : int(at[row]) + 20])))
        return pa.array(texts, pa.string()).take(pa.array(numbers))

    def _ids(self) -> pa.Array:
        """The senders' unique keys, and offset ids for messages without one."""
        ids = self.pairs.column(UNIQ_KEY)
        if not ids.null_count:
            return ids
        rows = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        made: list[str] | pa.Array
        if self._store_v6[rows].any():
            made = pa.array([self._offset_id(int(row)) for row in rows], pa.string())
        else:
            raw = np.empty((len(rows), 16), np.uint8)
            raw[:, :8] = self._gather(self._store_host_at[rows], "V8").view(np.uint8).reshape(-1, 8)
            offset_at = self._position[rows] + FIELD_AT["physical_offset"]
            raw[:, 8:] = self._gather(offset_at, "V8").view(np.uint8).reshape(-1, 8)
            bounds = np.arange(0, 32 * len(rows) + 1, 32, dtype=np.int32)
            digits = pa.py_buffer(_HEX[raw].tobytes())
            made = pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(bounds), digits])
        place = np.arange(len(ids))
        place[rows] = len(ids) + np.arange(len(rows))
        return pa.concat_arrays([ids, made]).take(pa.array(place))

    def _offset_id(self, row: int) -> str:
        at, size = int(self._store_host_at[row]), 20 if self._store_v6[row] else 8
        offset_at = int(self._position[row]) + FIELD_AT["physical_offset"]
        return (bytes(self._view[at : at + size]) + bytes(self._view[offset_at : offset_at + 8])).hex().upper()


def _parts(records: ScannedRecords) -> Iterator[ScannedRecords]:
    """`records` in pieces of limited size; a single large record is a piece of its own."""
    begin = 0
    ends = np.cumsum(records.size)
    while begin < len(records):
        before = int(ends[begin - 1]) if begin else 0
        fits = int(np.searchsorted(ends, before + BATCH_BYTES_MAX, side="right"))
        end = min(max(fits, begin + 1), begin + BATCH_ROWS_MAX)
        yield records if end - begin == len(records) else records.select(slice(begin, end))
        begin = end


def _timestamps(milliseconds: np.ndarray) -> pa.Array:
    # A client may send any number as its time; one out of Spark's range becomes Spark's first or last time.
    micros = np.clip(milliseconds.astype(np.int64, copy=False), -_MICROS_MAX, _MICROS_MAX) * 1000
    return pa.array(micros).view(pa.timestamp("us", tz="UTC"))


def _host_v4(packed: int) -> str:
    port = packed & 0xFFFFFFFF
    return f"{ipaddress.IPv4Address(packed >> 32)}:{port - (1 << 32) if port >> 31 else port}"


def _host_v6(packed: bytes) -> str:
    return f"[{ipaddress.IPv6Address(packed[:16])}]:{int.from_bytes(packed[16:], 'big', signed=True)}"
