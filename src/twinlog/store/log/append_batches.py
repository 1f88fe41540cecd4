"""Many batch sends of one sender at once, with numpy: hundreds of records cost little more than dozens.

What it trades: `append_elements` walks one batch and makes an object per record. Here all elements of several batches
are checked as columns, their heads are one array, and the records become one piece of bytes. Nothing is said about the
records but where they are; the caller reads them as columns, as a replica does. It takes batches only if all of them
are ordinary and fit the current segment, and returns None otherwise, with nothing stored. A property test holds this
equal to one batch after the other.

As in `append_run`, all of it becomes visible with its first eight bytes, written last. A large piece is written by a
system call: a copy into the mapping would need pages that were filled with zeros before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from twinlog.store.log.append_run import PAIR_END, UNUSUAL_FLAGS
from twinlog.store.log.appender import Appender, QueueCursor
from twinlog.store.log.record_crc import CRC_NAME, CRC_PROPERTY_BYTES, crc_properties, crc_property
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.checksum import crc32
from twinlog.wire.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from twinlog.wire.properties import PROPERTIES_BYTES_MAX
from twinlog.wire.record_layout import BLANK_BYTES, HEAD_BYTES, HEAD_NUMPY_FIELDS, HOST_BYTES, PROPERTIES_LENGTH

Batch = tuple[str, int, bytes | memoryview, int, int, int]
"""topic, queue id, elements, born timestamp, system flag, reconsumed"""

_HEAD_TYPE = np.dtype(HEAD_NUMPY_FIELDS)
_ELEMENT_TYPE = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_length", ">i4")])
_SIZE = struct.Struct(">i").unpack_from
_COPIED_BYTES_MAX = 1024  # bodies up to this size are copied faster than viewed
_ELEMENT_BYTES_MIN = ELEMENT_HEAD.size + 2
_WRITTEN_BYTES_MIN = 64 * 1024  # from here on a call is cheaper than a copy into the mapping
_ALIKE_MIN = 8  # so many elements of one size in a row are read, or joined, as a table
_ALIKE_STEP = 256


class StoredBatches(NamedTuple):
    """Where the records of all batches are."""

    physical_offsets: np.ndarray
    data: memoryview  # of all records
    heads: np.ndarray  # of all records, as they were written
    sizes: list[int]  # of each batch's records together
    counts: list[int]  # of the records of each batch
    queue_offsets: list[int]  # of each batch's first record


class _Elements(NamedTuple):
    """The elements of all batches; positions are in the bytes of all batches together."""

    counts: list[int]
    body_at: np.ndarray
    body_end: np.ndarray
    end: np.ndarray
    flag: np.ndarray


def append_batches(appender: Appender, born_host: tuple[str, int], batches: Sequence[Batch]) -> StoredBatches | None:
    """Store all batches, one after the other; None when they must be stored one by one."""
    born, store, log = appender.host(born_host), appender.store_host, appender.log
    if born is None or len(born) != HOST_BYTES or len(store) != HOST_BYTES:
        return None
    cursors = _cursors(appender, batches)
    if cursors is None:
        return None
    data = batches[0][2] if len(batches) == 1 else b"".join([batch[2] for batch in batches])
    elements = _read_elements(data, batches)
    if elements is None:
        return None
    counts, body_at, body_end, end, _ = elements
    added = _added_bytes(data, elements, appender.crc_bytes)
    if int((end - body_end - 2 + added).max()) > PROPERTIES_BYTES_MAX:
        return None
    # What a record has more than its element: the head is longer, and the topic is added.
    around = HEAD_BYTES - ELEMENT_HEAD.size + np.repeat([len(cursor.topic_bytes) for cursor in cursors], counts)
    sizes = end - body_at + ELEMENT_HEAD.size + around + added
    longest = int((end - body_at).max())  # of a body with its properties
    if longest > appender.body_bytes_max or int(sizes.max()) > appender.record_bytes_max:
        return None
    room, begin = int(sizes.sum()), log.log_end
    is_large = room >= _WRITTEN_BYTES_MIN
    if (is_large or begin + room > appender.ready_end) and begin + room + BLANK_BYTES > log.tail().end:
        return None
    if not is_large and begin + room > appender.ready_end and not appender.make_ready(room):
        return None
    physical_offsets = begin + np.cumsum(sizes) - sizes
    timestamp = max(appender.clock_ms(), appender.last_timestamp)
    heads = np.empty(len(sizes), _HEAD_TYPE)
    heads["size"], heads["physical_offset"], heads["flag"] = sizes, physical_offsets, elements.flag
    heads["born_host"], heads["store_timestamp"] = np.frombuffer(born, "V8")[0], timestamp
    heads["store_host"], heads["body_length"] = np.frombuffer(store, "V8")[0], body_end - body_at
    heads["prepared_transaction_offset"] = 0
    heads["body_crc"] = _checksums(data, body_at, body_end)
    next_offsets: dict[QueueCursor, int] = {}
    queue_offsets = [_advance(next_offsets, cursor, count) for cursor, count in zip(cursors, counts, strict=True)]
    numbers = np.array(counts, np.int64)
    first_rows = np.cumsum(numbers) - numbers
    heads["queue_offset"] = np.arange(len(sizes)) + np.repeat(queue_offsets - first_rows, counts)
    heads["magic"] = np.repeat([cursor.magic for cursor in cursors], counts)
    heads["queue_id"] = np.repeat([batch[1] for batch in batches], counts)
    heads["born_timestamp"] = np.repeat([batch[3] for batch in batches], counts)
    heads["sys_flag"] = np.repeat([batch[4] for batch in batches], counts)
    heads["reconsume_times"] = np.repeat([batch[5] for batch in batches], counts)
    joined = _join(heads, data, elements, cursors, added)
    if joined is None:
        return None
    assert len(joined) == room
    if is_large:
        log.write_records(joined)
    else:
        memory = appender.memory
        assert memory is not None
        position = begin - appender.base
        memory[position + 8 : position + room] = joined[8:]
        memory[position : position + 8] = joined[:8]
        log.log_end = begin + room
    appender.last_timestamp = timestamp
    for cursor, next_offset in next_offsets.items():
        cursor.next_offset = next_offset
    totals = np.add.reduceat(sizes, first_rows).tolist()
    return StoredBatches(physical_offsets, joined, heads, totals, counts, queue_offsets)


def _cursors(appender: Appender, batches: Sequence[Batch]) -> list[QueueCursor] | None:
    """The queue of each batch; None when one of them is unusual."""
    cursors: list[QueueCursor] = []
    for topic, queue_id, _, born_timestamp, sys_flag, reconsume_times in batches:
        cursor = appender.queues.get((topic, queue_id))
        if (
            cursor is None
            or cursor.is_schedule
            or sys_flag & UNUSUAL_FLAGS
            or not LONG_MIN <= born_timestamp <= LONG_MAX
        ):
            return None
        if not (INT_MIN <= sys_flag <= INT_MAX and INT_MIN <= reconsume_times <= INT_MAX):
            return None
        cursors.append(cursor)
    return cursors


def _advance(next_offsets: dict[QueueCursor, int], cursor: QueueCursor, count: int) -> int:
    """The queue offset of a batch's first record; the next batch of the queue follows after `count` records."""
    offset = next_offsets.get(cursor, cursor.next_offset)
    next_offsets[cursor] = offset + count
    return offset


def _read_elements(data: bytes | memoryview, batches: Sequence[Batch]) -> _Elements | None:
    """The elements of all batches; None when the lengths of one do not add up."""
    found = _starts(data, [len(batch[2]) for batch in batches])
    if found is None:
        return None
    at, counts = found
    view = np.frombuffer(data, np.uint8)
    windows = np.ndarray((len(data) - ELEMENT_HEAD.size + 1,), f"V{ELEMENT_HEAD.size}", buffer=data, strides=(1,))
    fields = windows[at].view(_ELEMENT_TYPE)
    end, body_at = at + fields["size"], at + ELEMENT_HEAD.size
    body_end = body_at + fields["body_length"]
    if bool((body_end < body_at).any()) or bool((body_end + 2 > end).any()):
        return None
    properties_length = view[body_end].astype(np.int64) << 8 | view[body_end + 1]
    if bool((body_end + 2 + properties_length != end).any()) or int(properties_length.max()) > PROPERTIES_BYTES_MAX:
        return None
    return _Elements(counts, body_at, body_end, end, fields["flag"])


def _starts(data: bytes | memoryview, lengths: list[int]) -> tuple[np.ndarray, list[int]] | None:
    """Where the elements of batches of these lengths begin, and how many each batch has; None if sizes do not fit."""
    if min(lengths) < _ELEMENT_BYTES_MIN:
        return None
    (size,) = _SIZE(data)
    if size >= _ELEMENT_BYTES_MIN and not any(length % size for length in lengths):
        number = len(data) // size
        if _count_alike(data, 0, size, number) == number:
            return np.arange(0, len(data), size, dtype=np.int64), [length // size for length in lengths]
    starts: list[int] = []
    counts: list[int] = []
    at = end = before = alike = 0
    for length in lengths:
        first, end = len(starts), end + length
        while end - at >= _ELEMENT_BYTES_MIN:
            (size,) = _SIZE(data, at)
            if size < _ELEMENT_BYTES_MIN:
                return None
            alike = alike + 1 if size == before else 0
            number, before = 1, size
            if alike >= _ALIKE_MIN and size <= end - at:
                number = _count_alike(data, at, size, min(_ALIKE_STEP, (end - at) // size))
            starts += range(at, at + number * size, size)
            at += number * size
        if at != end:
            return None
        counts.append(len(starts) - first)
    return np.array(starts, np.int64), counts


def _count_alike(data: bytes | memoryview, at: int, size: int, number: int) -> int:
    """How many of `number` elements from `at` on have this size before the first that does not."""
    differ = np.ndarray((number,), ">i4", buffer=data, offset=at, strides=(size,)) != size
    first = int(differ.argmax())
    return first if differ[first] else number


def _checksums(data: bytes | memoryview, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    source = bytes(data) if len(data) < _COPIED_BYTES_MAX * len(begin) else memoryview(data)
    pairs = zip(begin.tolist(), end.tolist(), strict=True)
    return np.array([crc32(source[first:last]) for first, last in pairs], np.int64) & 0x7FFFFFFF


def _added_bytes(data: bytes | memoryview, elements: _Elements, crc_bytes: int) -> np.ndarray:
    """What is added to each element's properties: a checksum, and the separator before it where that is missing."""
    _, _, body_end, end, _ = elements
    if not crc_bytes:
        return np.zeros(len(end), np.int64)
    unclosed = (np.frombuffer(data, np.uint8)[end - 1] != PAIR_END) & (end > body_end + 2)
    return crc_bytes + unclosed.astype(np.int64)


def _join(
    heads: np.ndarray, data: bytes | memoryview, elements: _Elements, cursors: list[QueueCursor], added: np.ndarray
) -> memoryview | None:
    """The records back to back; None if one still has the checksum of a record that it was before."""
    counts, body_at, body_end, end, _ = elements
    lengths, sizes = body_end - body_at, end - body_at
    topics = [cursor.topic_bytes for cursor in cursors]
    numbers = np.zeros(len(heads), np.int64)
    if any(topic != topics[0] for topic in topics):
        distinct = {topic: number for number, topic in enumerate(topics)}
        numbers = np.repeat([distinct[topic] for topic in topics], counts)
    differ = np.zeros(len(heads), bool)
    for column in (lengths, sizes, added, numbers):
        differ[1:] |= column[1:] != column[:-1]
    cuts = [0, *np.flatnonzero(differ).tolist(), len(heads)]
    if (len(cuts) - 1) * _ALIKE_MIN > len(heads):
        return _join_parts(heads, bytes(data), elements, cursors, added)
    starts = np.append(0, np.cumsum(heads["size"], dtype=np.int64))[cuts].tolist()
    joined, source = np.empty(starts[-1], np.uint8), np.frombuffer(data, np.uint8)
    for number, (first, last) in enumerate(pairwise(cuts)):
        begin = int(body_at[first]) - ELEMENT_HEAD.size
        given = source[begin : int(end[last - 1])].reshape(last - first, -1)
        table = joined[starts[number] : starts[number + 1]].reshape(last - first, -1)
        topic = topics[int(numbers[first])] if len(topics) > 1 else topics[0]
        if not _fill_table(table, heads[first:last], given, int(lengths[first]), topic, int(added[first])):
            return None
    return joined.data


def _fill_table(
    table: np.ndarray, heads: np.ndarray, given: np.ndarray, body_length: int, topic: bytes, added: int
) -> bool:
    """Records of elements that are alike: each part of all of them is one copy. False as in `_join`."""
    number, size = given.shape
    topic_at, given_at = HEAD_BYTES + body_length, ELEMENT_HEAD.size + body_length
    length_at = topic_at + len(topic)
    end = length_at + size - given_at
    table[:, :HEAD_BYTES] = heads.view(np.uint8).reshape(number, HEAD_BYTES)
    table[:, HEAD_BYTES:topic_at] = given[:, ELEMENT_HEAD.size : given_at]
    table[:, topic_at:length_at] = np.frombuffer(topic, np.uint8)
    table[:, length_at:end] = given[:, given_at:]
    if CRC_NAME in given[:, given_at:].tobytes():
        return False
    if added:
        record_end = end + added - CRC_PROPERTY_BYTES
        table[:, length_at : length_at + 2] = np.frombuffer(
            PROPERTIES_LENGTH.pack(end - length_at - 2 + added), np.uint8
        )
        table[:, end:record_end] = PAIR_END
        flat, width = table.data.cast("B"), end + added
        crcs = [crc32(flat[at : at + record_end]) for at in range(0, number * width, width)]
        table[:, record_end:] = crc_properties(np.array(crcs, np.int64))
    return True


def _join_parts(
    heads: np.ndarray, data: bytes, elements: _Elements, cursors: list[QueueCursor], added: np.ndarray
) -> memoryview | None:
    """The same, record by record."""
    if CRC_NAME in data:
        return None
    counts, body_at, body_end, end, _ = elements
    packed = heads.tobytes()
    topics = (topic for cursor, count in zip(cursors, counts, strict=True) for topic in [cursor.topic_bytes] * count)
    places = zip(body_at.tolist(), body_end.tolist(), end.tolist(), added.tolist(), strict=True)
    parts: list[bytes] = []
    for number, ((first, middle, last, more), topic) in enumerate(zip(places, topics, strict=True)):
        head = packed[number * HEAD_BYTES : (number + 1) * HEAD_BYTES]
        if not more:
            parts += (head, data[first:middle], topic, data[middle:last])
            continue
        length = PROPERTIES_LENGTH.pack(last - middle - 2 + more)
        closing = b"\x02" if more > CRC_PROPERTY_BYTES else b""
        record = b"".join((head, data[first:middle], topic, length, data[middle + 2 : last], closing))
        parts += (record, crc_property(record))
    return memoryview(b"".join(parts))
