"""A whole batch send at once: from its elements straight to records.

What it trades: `decode_batch` and `append_drafts` are the definition, with objects for each message. This packs all
records into one piece, and copies that piece into the mapped log: with a few calls for all elements if these are alike
(`batch_layout`), else element by element. It takes a batch only if every element is ordinary (IPv4 on both sides, no
transaction, within all limits) and returns None otherwise, with nothing stored. A property test holds both equal.

As in `append_run`, all of it becomes visible with its first eight bytes, written last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from twinlog.store.log.append import Appended, PutStatus
from twinlog.store.log.append_run import PAIR_END, UNUSUAL_FLAGS
from twinlog.store.log.appender import PACKED_LENGTHS, Appender, QueueCursor
from twinlog.store.log.batch_layout import BatchLayout, Parts
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.log.record_crc import CRC_NAME, CRC_SIGN, with_crcs
from twinlog.store.property_scan import dispatch_tags
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.checksum import crc32
from twinlog.wire.java_text import tags_code
from twinlog.wire.record_layout import HEAD_BYTES, HEADS, HOST_BYTES, PROPERTIES_LENGTH

# The head of a record, with all that the records of a batch share in one piece.
_SHARED = struct.Struct(f">iq{HOST_BYTES}sq{HOST_BYTES}siq")
_HEAD = struct.Struct(HEADS[0].format.replace(_SHARED.format[1:], f"{_SHARED.size}s"))
_PROPERTIES_MAX = 4095

_Encoded = tuple[bytes, Sequence[int], list[int], Sequence[bytes], list[int]]
"""the records in one piece; of each, its physical offset, its size, its properties, its tags code"""


def append_elements(
    appender: Appender,
    born_host: tuple[str, int],
    topic: str,
    queue_id: int,
    batch: bytes,
    born_timestamp: int,
    sys_flag: int,
    reconsume_times: int,
) -> Appended | None:
    """Store all elements of `batch` next to each other; None when it needs the plain way, `append_drafts`."""
    born = appender.host(born_host)
    store = appender.store_host
    queue = appender.queue(topic, queue_id)
    if queue is None or queue.is_schedule or sys_flag & UNUSUAL_FLAGS:
        return None
    if born is None or len(born) != HOST_BYTES or len(store) != HOST_BYTES:
        return None
    timestamp = max(appender.clock_ms(), appender.last_timestamp)
    try:  # a number does not fit its field: the plain way returns the status, and no file is made
        shared = _SHARED.pack(sys_flag, born_timestamp, born, timestamp, store, reconsume_times, 0)
        _HEAD.pack(0, 0, 0, queue_id, 0, 0, 0, shared, 0)
    except struct.error:
        return None
    alike = appender.layouts.read(batch, len(queue.topic_bytes))
    if alike is not None:
        encoded = _encode_alike(appender, queue, queue_id, shared, *alike)
    else:
        encoded = _encode_each(appender, queue, queue_id, shared, batch)
    if encoded is None:
        return None
    data, offsets, sizes, properties, codes = encoded
    log, memory, room, begin = appender.log, appender.memory, len(data), offsets[0]
    assert memory is not None and begin == log.log_end and begin + room <= appender.ready_end
    joined, position = memoryview(data), begin - appender.base
    memory[position + 8 : position + room] = joined[8:]
    memory[position : position + 8] = joined[:8]
    queue_offset = queue.next_offset
    appender.last_timestamp = timestamp
    appender.add_run(
        BatchRequests(topic, queue_id, queue_offset, offsets, sizes, codes, properties, timestamp, sys_flag)
    )
    queue.next_offset = queue_offset + len(offsets)
    log.log_end = begin + room
    return Appended(PutStatus.PUT_OK, begin, room, queue_offset, timestamp, log.log_end, tuple(offsets))


def _encode_alike(
    appender: Appender, queue: QueueCursor, queue_id: int, shared: bytes, layout: BatchLayout, parts: Parts
) -> _Encoded | None:
    """The records of elements that are alike, at the log's end, where there is room for them."""
    size, count = layout.record_bytes, layout.count
    if layout.content_bytes > appender.body_bytes_max or size > appender.record_bytes_max:
        return None
    if appender.log.log_end + count * size > appender.ready_end and not appender.make_ready(count * size):
        return None
    begin = appender.log.log_end
    data = layout.encode(parts, queue.magic, queue.topic_bytes, queue_id, shared, queue.next_offset, begin)
    _, properties, codes = parts
    return data, range(begin, begin + count * size, size), [size] * count, properties, codes


def _encode_each(appender: Appender, queue: QueueCursor, queue_id: int, shared: bytes, batch: bytes) -> _Encoded | None:
    """The same, element by element."""
    if CRC_SIGN in batch and CRC_NAME in batch:
        return None
    log, crc_bytes, topic_bytes, magic = appender.log, appender.crc_bytes, queue.topic_bytes, queue.magic
    around = HEAD_BYTES + len(topic_bytes) - ELEMENT_HEAD.size  # the bytes that a record has more than its element
    end_bytes = crc_bytes + 1 if crc_bytes else 0  # of a checksum and the separator before it
    elements = _walk(batch, min(appender.body_bytes_max, appender.record_bytes_max - around - end_bytes), end_bytes)
    if not elements:
        return None
    room = len(batch) + (around + crc_bytes) * len(elements)
    if crc_bytes:
        room += sum(batch[end - 1] != PAIR_END for _, body_end, end, _ in elements if end > body_end + 2)
    if log.log_end + room > appender.ready_end and not appender.make_ready(room):
        return None
    pack, at, queue_offset = _HEAD.pack, log.log_end, queue.next_offset
    records: list[bytes] = []
    offsets: list[int] = []
    sizes: list[int] = []
    texts: list[bytes] = []
    codes: list[int] = []
    for body_at, body_end, end, flag in elements:
        body, properties = batch[body_at:body_end], batch[body_end + 2 : end]
        if crc_bytes and properties and properties[-1] != PAIR_END:
            properties += b"\x02"
        length, properties_length = body_end - body_at, len(properties) + crc_bytes
        size = around + ELEMENT_HEAD.size + length + 2 + properties_length
        head = pack(size, magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, at, shared, length)
        records.append(b"".join((head, body, topic_bytes, PACKED_LENGTHS[properties_length], properties)))
        offsets.append(at)
        sizes.append(size)
        texts.append(properties)
        codes.append(tags_code(dispatch_tags(properties)))
        at += size
        queue_offset += 1
    data = with_crcs(records) if crc_bytes else b"".join(records)
    assert len(data) == room
    return data, offsets, sizes, texts, codes


def _walk(batch: bytes, body_bytes_max: int, end_bytes: int) -> list[tuple[int, int, int, int]]:
    """(body begin, body end, element end, flag) of each; empty when one of them is not ordinary."""
    elements: list[tuple[int, int, int, int]] = []
    at, total = 0, len(batch)
    unpack, head_bytes, unpack_length = ELEMENT_HEAD.unpack_from, ELEMENT_HEAD.size, PROPERTIES_LENGTH.unpack_from
    try:
        while at < total:
            size, _, _, flag, length = unpack(batch, at)
            body_at = at + head_bytes
            body_end = body_at + length
            end = at + size
            (properties_length,) = unpack_length(batch, body_end)
            if not 0 <= properties_length <= _PROPERTIES_MAX - end_bytes or end != body_end + 2 + properties_length:
                return []
            if length < 0 or end > total or end - body_at > body_bytes_max:
                return []
            elements.append((body_at, body_end, end, flag))
            at = end
    except struct.error:
        return []
    return elements
