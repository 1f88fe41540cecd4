"""A fast walk over log bytes: records become columns, not objects.

What it trades: `decode_message` of the wire package is the definition of a valid record. This module checks
the same things for thousands of records at a time with numpy, and does not look inside the properties.
A property test holds both equal. Only three loops run per record: the chain of sizes where they differ, the
CRC of bodies, and the rare fields behind an IPv6 host.

A walk covers one file (a record never spans two) and stops at the first place that is no valid record:

    records ... | BLANK  the rest of the file is unused, go on with the next one
                | END    zeros or the end of the given bytes: nothing was written here
                | a damaged or torn record, with the reason
"""

from __future__ import annotations

import enum
import mmap
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twinlog.store.log.record_crc import has_valid_crc
from twinlog.store.scan.malloc_hint import LARGE_BYTES, keep_freed_memory
from twinlog.store.scan.topic_columns import number_topics
from twinlog.wire.checksum import crc32
from twinlog.wire.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from twinlog.wire.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from twinlog.wire.topic_name import decode_topic

RECORDS_PER_BATCH = 8192
_SIZE_AND_MAGIC = struct.Struct(">iI")
_SIZE_AND_MAGIC_TYPE = np.dtype([("size", ">i4"), ("magic", ">u4")])
_ALIKE_MIN = 8  # after so many records of one size, the next ones are looked at all at once
_V6_EXTRA = 12
_V6_BITS = BORN_HOST_V6 | STORE_HOST_V6
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]

# The fixed part of a record with IPv4 hosts; every byte of a file is a possible start of it.
HEAD_TYPE = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
_HEAD_BYTES = np.dtype((np.void, HEAD_TYPE.itemsize))
_BEHIND_HOSTS = ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_length")
_FIELD_AT = {name: field[1] for name, field in (HEAD_TYPE.fields or {}).items()}


class StopReason(enum.Enum):
    """Why a walk ended."""

    END = "end of the written bytes"
    BLANK = "blank record"
    SHORT = "record runs over the end"
    MAGIC = "no record magic"
    SIZE = "impossible record size"
    OFFSET = "record carries another physical offset"
    LENGTHS = "lengths do not add up"
    CRC = "body CRC differs"
    RECORD_CRC = "record CRC differs"
    TOPIC = "topic is no name"


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a walk ended: the position in the walked buffer."""

    position: int
    reason: StopReason
    detail: str = ""


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
    stop: Stop | None = None  # set on the last batch of a walk

    def __len__(self) -> int:
        return len(self.position)

    def select(self, rows: np.ndarray | slice) -> ScannedRecords:
        """The same columns for some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return ScannedRecords(buffer=self.buffer, topics=self.topics, stop=self.stop, **columns)


_COLUMNS = tuple(name for name in ScannedRecords.__dataclass_fields__ if name not in ("buffer", "topics", "stop"))


def scan(
    buffer: memoryview | bytes | mmap.mmap,
    begin: int,
    end: int,
    base: int,
    *,
    check_crc: bool = True,
    check_record_crc: bool = False,
    check_offset: bool = True,
    batch_records: int = RECORDS_PER_BATCH,
) -> Iterator[ScannedRecords]:
    """Walk the records in `buffer[begin:end]`, whose byte 0 is physical offset `base`.

    Yields at least one batch; the last one (which may be empty) carries the stop.
    """
    view = memoryview(buffer)
    if end - begin > LARGE_BYTES:
        keep_freed_memory()
    while True:
        positions, stop = _walk(view, begin, end, batch_records)
        batch, bad = columns_at(view, positions, end, base, check_offset)
        bad = _first_bad_crc(batch, check_crc and not check_record_crc, check_record_crc) or bad
        if bad is not None:
            keep = int(np.searchsorted(batch.position, bad.position)) if len(batch) else 0
            batch, stop = batch.select(slice(0, keep)), bad
        batch.stop = stop
        yield batch
        if stop is not None:
            return
        begin = int(batch.position[-1] + batch.size[-1])


def find_record(
    buffer: mmap.mmap | bytes, begin: int, search_end: int, end: int, base: int, timestamp_min: int = 0
) -> int | None:
    """The first position between `begin` and `search_end` where a whole valid record stands that belongs there.

    It must carry its own physical offset and be no older than `timestamp_min`: bytes of an earlier life of
    the file, left behind by a truncation, are older than the records written after it.
    """
    at = buffer.find(_MAGIC_PREFIX, begin + 4, search_end)
    while at >= 0:
        position = at - 4
        batch = next(scan(buffer, position, end, base, batch_records=1))
        if len(batch) and int(batch.store_timestamp[0]) >= timestamp_min:
            return position
        at = buffer.find(_MAGIC_PREFIX, at + 1, search_end)
    return None


def _walk(view: memoryview, at: int, end: int, count: int) -> tuple[np.ndarray, Stop | None]:
    """Follow the size fields; the stop is None when `count` records were found first."""
    positions: list[int] = []
    add, unpack, last = positions.append, _SIZE_AND_MAGIC.unpack_from, end - 8
    stop = None
    alike, alike_enough, size_before = 0, _ALIKE_MIN, 0
    while len(positions) < count:
        if at > last:
            torn = at < end and any(view[at:end])
            stop = Stop(at, StopReason.SHORT if torn else StopReason.END, f"{end - at} bytes are left")
            break
        size, magic = unpack(view, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            if magic == MAGIC_BLANK:
                stop = Stop(at, StopReason.BLANK)
            elif size == 0 and magic == 0:
                stop = Stop(at, StopReason.END, "zeros follow")
            else:
                stop = Stop(at, StopReason.MAGIC, f"magic {magic:#010x}")
            break
        if size < RECORD_BYTES_MIN:
            stop = Stop(at, StopReason.SIZE, f"{size} bytes")
            break
        if at + size > end:
            stop = Stop(at, StopReason.SHORT, f"{size} bytes, {end - at} are left")
            break
        add(at)
        at += size
        alike = alike + 1 if size == size_before else 0
        size_before = size
        if alike == alike_enough:
            run = _run_of(view, at, end, size, count - len(positions))
            positions += range(at, at + run * size, size)
            at += run * size
            alike, alike_enough = 0, alike_enough if run >= _ALIKE_MIN else alike_enough * 2
    return np.array(positions, np.int64), stop


def _run_of(view: memoryview, at: int, end: int, size: int, count_max: int) -> int:
    """How many records of this size stand in a row from `at` on; busy logs have long runs of one program's."""
    count = min(count_max, (end - at) // size)
    if count <= 0:
        return 0
    heads = np.ndarray((count,), _SIZE_AND_MAGIC_TYPE, buffer=view, offset=at, strides=(size,))
    magic = heads["magic"]
    fits = (heads["size"] == size) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
    return count if fits.all() else int(np.argmin(fits))


def columns_at(
    view: memoryview, position: np.ndarray, end: int, base: int, check_offset: bool
) -> tuple[ScannedRecords, Stop | None]:
    """The columns of the records at these positions, up to the first whose fields do not agree, and that one."""
    heads = gather_heads(view, position, end)
    fields = {
        name: heads[name].astype(heads[name].dtype.newbyteorder("="))
        for name in HEAD_TYPE.names or ()
        if "host" not in name
    }
    size, sys_flag = fields["size"].astype(np.int64), fields["sys_flag"]
    extra = np.zeros(len(position), np.int64)
    if len(position) and bool(np.any(sys_flag & _V6_BITS)):
        extra = _shift_behind_v6(view, position, size, fields)
    bytes_ = np.frombuffer(view, np.uint8, end)
    record_end = position + size
    version = np.where(fields["magic"] == MAGIC_V2, 2, 1)
    body_length = fields["body_length"].astype(np.int64)
    body_at = position + HEAD_TYPE.itemsize + extra
    topic_length_at = body_at + body_length
    good = (body_length >= 0) & (topic_length_at + version + 2 <= record_end)
    safe = np.where(good, topic_length_at, position)  # rows that failed are read somewhere harmless
    high = bytes_[safe].astype(np.int64)
    topic_length = np.where(
        version == 1, high.astype(np.int8), (high.astype(np.int8).astype(np.int64) << 8) | bytes_[safe + 1]
    )
    topic_at = topic_length_at + version
    properties_length_at = topic_at + topic_length
    good &= (topic_length >= 0) & (properties_length_at + 2 <= record_end)
    safe = np.where(good, properties_length_at, position)
    properties_length = (bytes_[safe].astype(np.int8).astype(np.int64) << 8) | bytes_[safe + 1]
    good &= (properties_length >= 0) & (properties_length_at + 2 + properties_length == record_end)
    offset_good = (fields["physical_offset"] == position + base) if check_offset else np.ones(len(position), bool)

    bad, keep = None, len(position)
    if not (good & offset_good).all():
        keep = row = int(np.argmin(good & offset_good))
        if offset_good[row]:
            bad = Stop(int(position[row]), StopReason.LENGTHS)
        else:
            bad = Stop(int(position[row]), StopReason.OFFSET, f"says {int(fields['physical_offset'][row])}")
    batch = ScannedRecords(
        buffer=view,
        position=position,
        physical_offset=position + base,
        size=size,
        version=version,
        body_crc=fields["body_crc"],
        queue_id=fields["queue_id"],
        flag=fields["flag"],
        queue_offset=fields["queue_offset"],
        sys_flag=sys_flag,
        born_timestamp=fields["born_timestamp"],
        store_timestamp=fields["store_timestamp"],
        reconsume_times=fields["reconsume_times"],
        prepared_transaction_offset=fields["prepared_transaction_offset"],
        body_at=body_at,
        body_length=body_length,
        topic_at=topic_at,
        topic_length=topic_length,
        properties_at=properties_length_at + 2,
        properties_length=properties_length,
        topic_number=np.zeros(len(position), np.int64),
        topics=[],
    )
    if bad is not None:
        batch = batch.select(slice(0, keep))
    odd = _name_topics(batch)
    if odd is not None:
        bad = Stop(int(batch.position[odd]), StopReason.TOPIC)
        batch = batch.select(slice(0, odd))
    return batch, bad


def gather_heads(view: memoryview, position: np.ndarray, end: int) -> np.ndarray:
    """The fixed parts at these positions. They are gathered as plain bytes: numpy copies a record field by field."""
    if not len(position):
        return np.zeros(0, HEAD_TYPE)
    starts = end - HEAD_TYPE.itemsize + 1
    return np.ndarray((starts,), _HEAD_BYTES, buffer=view, strides=(1,))[position].view(HEAD_TYPE)


def _shift_behind_v6(
    view: memoryview, position: np.ndarray, size: np.ndarray, fields: dict[str, np.ndarray]
) -> np.ndarray:
    """Read the fields behind an IPv6 host again, where they really are; returns the bytes that hosts add."""
    born = np.where(fields["sys_flag"] & BORN_HOST_V6, _V6_EXTRA, 0).astype(np.int64)
    store = np.where(fields["sys_flag"] & STORE_HOST_V6, _V6_EXTRA, 0).astype(np.int64)
    for row in np.flatnonzero(born + store):
        fits = size[row] >= RECORD_BYTES_MIN + born[row] + store[row]
        for name in _BEHIND_HOSTS:
            shift = born[row] + (store[row] if name != "store_timestamp" else 0)
            dtype = HEAD_TYPE[name]
            at = int(position[row] + _FIELD_AT[name] + shift)
            data = bytes(view[at : at + dtype.itemsize])
            fields[name][row] = int.from_bytes(data, "big", signed=True) if fits else -1
    return born + store


def _name_topics(batch: ScannedRecords) -> int | None:
    """Fill in the topics; returns the first record whose topic is none."""
    names, batch.topic_number = number_topics(batch.buffer, batch.topic_at, batch.topic_length)
    bad: list[int] = []
    for number, name in enumerate(names):
        topic = decode_topic(name)
        batch.topics.append(topic or "")
        if topic is None:
            bad.append(int(np.argmax(batch.topic_number == number)))
    return min(bad, default=None)


def _first_bad_crc(batch: ScannedRecords, body: bool, record: bool) -> Stop | None:
    view = batch.buffer
    if record:
        for at, size in zip(batch.position.tolist(), batch.size.tolist(), strict=True):
            if not has_valid_crc(view[at : at + size]):
                return Stop(at, StopReason.RECORD_CRC)
    if body and len(batch):
        wrong = (_body_crcs(batch) & 0x7FFFFFFF) != batch.body_crc.astype(np.uint32)
        if wrong.any():
            row = int(np.argmax(wrong))
            return Stop(int(batch.position[row]), StopReason.CRC)
    return None


def _body_crcs(batch: ScannedRecords) -> np.ndarray:
    view, at, length = batch.buffer, batch.body_at, batch.body_length
    step, first = int(at[-1] - at[0]) // max(1, len(at) - 1), int(length[0])
    if bool((length == first).all()) and bool((np.diff(at) == step).all()):  # a run of one program's messages
        bodies = np.ndarray((len(at), first), np.uint8, buffer=view, offset=int(at[0]), strides=(step, 1))
        return np.array(array("I", map(crc32, bodies)))
    ends = (at + length).tolist()
    return np.array(array("I", [crc32(view[begin:end]) for begin, end in zip(at.tolist(), ends, strict=True)]))
