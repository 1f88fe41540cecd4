"""Many batch sends of one sender at once, with numpy: hundreds of records cost little more than dozens.

What it trades: `append_elements` walks one batch and makes an object per record. Here all elements of several batches
are checked as columns, their heads are one array, and the records become one piece of bytes. Nothing is said about the
records but where they are; the caller reads them as columns, as a replica does. It takes batches only if all of them
are ordinary and fit the current segment, and returns None otherwise, with nothing stored. A property test holds this
equal to one batch after the other.

As in `append_run`, all of it becomes visible with its first eight bytes, written last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from twinlog.store.log.append_run import UNUSUAL_FLAGS
from twinlog.store.log.appender import Appender, QueueCursor
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.checksum import crc32
from twinlog.wire.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from twinlog.wire.properties import PROPERTIES_BYTES_MAX
from twinlog.wire.record_layout import BLANK_BYTES, HEAD_BYTES, HEAD_NUMPY_FIELDS, HOST_BYTES

Batch = tuple[str, int, bytes, int, int, int]
"""topic, queue id, elements, born timestamp, system flag, reconsumed"""

_HEAD_TYPE = np.dtype(HEAD_NUMPY_FIELDS)
_ELEMENT_TYPE = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_length", ">i4")])
_SIZE = struct.Struct(">i").unpack_from
_COPIED_BYTES_MAX = 1024  # bodies up to this size are copied faster than viewed
_ELEMENT_BYTES_MIN = ELEMENT_HEAD.size + 2


class StoredBatches(NamedTuple):
    """Where the records of all batches are."""

    physical_offsets: np.ndarray
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
    if born is None or len(born) != HOST_BYTES or len(store) != HOST_BYTES or appender.crc_bytes:
        return None
    cursors = _cursors(appender, batches)
    if cursors is None:
        return None
    data = b"".join([batch[2] for batch in batches])
    elements = _read_elements(data, batches)
    if elements is None:
        return None
    counts, body_at, body_end, end, _ = elements
    # What a record has more than its element: the head is longer, and the topic is added.
    around = HEAD_BYTES - ELEMENT_HEAD.size + np.repeat([len(cursor.topic_bytes) for cursor in cursors], counts)
    sizes = end - body_at + ELEMENT_HEAD.size + around
    longest = int((end - body_at).max())  # of a body with its properties
    if longest > appender.body_bytes_max or int(sizes.max()) > appender.record_bytes_max:
        return None
    room, begin = int(sizes.sum()), log.log_end
    if begin + room > appender.ready_end and (
        begin + room + BLANK_BYTES > log.tail().end or not appender.make_ready(room)
    ):
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
    for name, place in (("queue_id", 1), ("born_timestamp", 3), ("sys_flag", 4), ("reconsume_times", 5)):
        heads[name] = np.repeat([batch[place] for batch in batches], counts)
    joined = _join(heads, data, elements, cursors)
    memory = appender.memory
    assert memory is not None and len(joined) == room
    position = begin - appender.base
    memory[position + 8 : position + room] = joined[8:]
    memory[position : position + 8] = joined[:8]
    appender.last_timestamp = timestamp
    for cursor, next_offset in next_offsets.items():
        cursor.next_offset = next_offset
    log.log_end = begin + room
    return StoredBatches(physical_offsets, heads, np.add.reduceat(sizes, first_rows).tolist(), counts, queue_offsets)


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


def _read_elements(data: bytes, batches: Sequence[Batch]) -> _Elements | None:
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


def _starts(data: bytes, lengths: list[int]) -> tuple[np.ndarray, list[int]] | None:
    """Where the elements of batches of these lengths begin, and how many each batch has; None if sizes do not fit."""
    if min(lengths) < _ELEMENT_BYTES_MIN:
        return None
    (size,) = _SIZE(data)
    if size >= _ELEMENT_BYTES_MIN and not any(length % size for length in lengths):
        number = len(data) // size
        if bool((np.ndarray((number,), ">i4", buffer=data, strides=(size,)) == size).all()):  # all have this size
            return np.arange(0, len(data), size, dtype=np.int64), [length // size for length in lengths]
    starts: list[int] = []
    counts: list[int] = []
    at = end = 0
    for length in lengths:
        before, end = len(starts), end + length
        while end - at >= _ELEMENT_BYTES_MIN:
            starts.append(at)
            (size,) = _SIZE(data, at)
            if size < _ELEMENT_BYTES_MIN:
                return None
            at += size
        if at != end:
            return None
        counts.append(len(starts) - before)
    return np.array(starts, np.int64), counts


def _checksums(data: bytes, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    source = data if len(data) < _COPIED_BYTES_MAX * len(begin) else memoryview(data)
    pairs = zip(begin.tolist(), end.tolist(), strict=True)
    return np.array([crc32(source[first:last]) for first, last in pairs], np.int64) & 0x7FFFFFFF


def _join(heads: np.ndarray, data: bytes, elements: _Elements, cursors: list[QueueCursor]) -> memoryview:
    """The records back to back."""
    counts, body_at, body_end, end, _ = elements
    topic = cursors[0].topic_bytes
    length, size = int(body_end[0] - body_at[0]), int(end[0] - body_at[0]) + ELEMENT_HEAD.size
    number = len(heads)
    if (
        len(data) == number * size
        and bool((body_end - body_at == length).all())
        and bool((end - body_at == size - ELEMENT_HEAD.size).all())
        and all(cursor.topic_bytes == topic for cursor in cursors)
    ):  # a table: each part of all records is one copy
        given = np.frombuffer(data, np.uint8).reshape(number, size)
        topic_at, given_at = HEAD_BYTES + length, ELEMENT_HEAD.size + length
        table = np.empty((number, HEAD_BYTES - ELEMENT_HEAD.size + len(topic) + size), np.uint8)
        table[:, :HEAD_BYTES] = heads.view(np.uint8).reshape(number, HEAD_BYTES)
        table[:, HEAD_BYTES:topic_at] = given[:, ELEMENT_HEAD.size : given_at]
        table[:, topic_at : topic_at + len(topic)] = np.frombuffer(topic, np.uint8)
        table[:, topic_at + len(topic) :] = given[:, given_at:]
        return table.data.cast("B")
    packed = heads.tobytes()
    topics = (topic for cursor, count in zip(cursors, counts, strict=True) for topic in [cursor.topic_bytes] * count)
    places = zip(body_at.tolist(), body_end.tolist(), end.tolist(), strict=True)
    parts: list[bytes] = []
    for number, ((first, middle, last), topic) in enumerate(zip(places, topics, strict=True)):
        head = packed[number * HEAD_BYTES : (number + 1) * HEAD_BYTES]
        parts += (head, data[first:middle], topic, data[middle:last])
    return memoryview(b"".join(parts))
