"""A whole batch send at once: from its elements straight to records.

What it trades: `decode_batch` and `append_drafts` are the definition, with objects for each message. This walks the
elements by offset, packs all records into one piece, and copies that piece into the mapped log. It takes a batch
only if every element is ordinary (IPv4 on both sides, no transaction, within all limits) and returns None otherwise,
with nothing stored. A property test holds both equal.

As in `append_run`, all of it becomes visible with its first eight bytes, written last.
"""

from __future__ import annotations

import struct

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.append import Appended, PutStatus
from twinlog.store.log.append_run import PAIR_END, UNUSUAL_FLAGS
from twinlog.store.log.appender import PACKED_LENGTHS, Appender
from twinlog.store.log.record_crc import CRC_NAME, CRC_SIGN, crc_property
from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.checksum import crc32
from twinlog.wire.java_text import tags_code
from twinlog.wire.record_layout import HEAD_BYTES, HEADS, HOST_BYTES, PROPERTIES_LENGTH

# The head of a record, with all that the records of a batch share in one piece.
_SHARED = struct.Struct(f">iq{HOST_BYTES}sq{HOST_BYTES}siq")
_HEAD = struct.Struct(HEADS[0].format.replace(_SHARED.format[1:], f"{_SHARED.size}s"))
_PROPERTIES_MAX = 4095
_UNIQ_KEY = b"UNIQ_KEY\x01"
_SHAPES_MAX = 16  # properties that differ more than that from message to message are not worth caching


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
    if queue is None or queue.is_schedule or sys_flag & UNUSUAL_FLAGS or (CRC_SIGN in batch and CRC_NAME in batch):
        return None
    if born is None or len(born) != HOST_BYTES or len(store) != HOST_BYTES:
        return None
    around = (
        HEAD_BYTES + len(queue.topic_bytes) - ELEMENT_HEAD.size
    )  # the bytes that a record has more than its element
    crc_bytes = appender.crc_bytes
    end_bytes = crc_bytes + 1 if crc_bytes else 0  # of a checksum and the separator before it
    elements = _walk(batch, min(appender.body_bytes_max, appender.record_bytes_max - around - end_bytes), end_bytes)
    if not elements:
        return None
    timestamp = max(appender.clock_ms(), appender.last_timestamp)
    try:  # a number does not fit its field: the plain way returns the status, and no file is made
        shared = _SHARED.pack(sys_flag, born_timestamp, born, timestamp, store, reconsume_times, 0)
        _HEAD.pack(0, 0, 0, queue_id, 0, 0, 0, shared, 0)
    except struct.error:
        return None
    log, room = appender.log, len(batch) + (around + crc_bytes) * len(elements)
    if crc_bytes:
        room += sum(batch[end - 1] != PAIR_END for _, body_end, end, _ in elements if end > body_end + 2)
    if log.log_end + room > appender.ready_end and not appender.make_ready(room):
        return None
    pack, topic_bytes, magic = _HEAD.pack, queue.topic_bytes, queue.magic
    at, queue_offset = log.log_end, queue.next_offset
    begin, first_queue_offset = at, queue_offset
    parts: list[bytes] = []
    requests: list[DispatchRequest] = []
    offsets: list[int] = []
    shapes: dict[bytes, tuple[int, str]] = {}
    for body_at, body_end, end, flag in elements:
        body, properties = batch[body_at:body_end], batch[body_end + 2 : end]
        if crc_bytes and properties and properties[-1] != PAIR_END:
            properties += b"\x02"
        length, properties_length = body_end - body_at, len(properties) + crc_bytes
        size = around + ELEMENT_HEAD.size + length + 2 + properties_length
        head = pack(
            size,
            magic,
            crc32(body) & 0x7FFFFFFF,
            queue_id,
            flag,
            queue_offset,
            at,
            shared,
            length,
        )
        record = b"".join((head, body, topic_bytes, PACKED_LENGTHS[properties_length], properties))
        parts += (record, crc_property(record)) if crc_bytes else (record,)
        code, keys, uniq_key = _found(properties, shapes)
        requests.append(
            DispatchRequest(
                topic, queue_id, at, size, code, timestamp, queue_offset, keys, uniq_key, sys_flag, 0, properties
            )
        )
        offsets.append(at)
        at += size
        queue_offset += 1
    memory = appender.memory
    assert memory is not None and at - begin == room
    joined = memoryview(b"".join(parts))
    position = begin - appender.base
    memory[position + 8 : position + room] = joined[8:]
    memory[position : position + 8] = joined[:8]
    appender.last_timestamp = timestamp
    appender.pending += requests
    queue.next_offset = queue_offset
    log.log_end = at
    return Appended(PutStatus.PUT_OK, begin, room, first_queue_offset, timestamp, at, tuple(offsets))


def _found(properties: bytes, shapes: dict[bytes, tuple[int, str]]) -> tuple[int, str, str | None]:
    """(tags code, keys, unique key); `shapes` caches the result for properties without the unique key."""
    at = properties.find(_UNIQ_KEY)
    end = properties.find(b"\x02", at)
    if at >= 0 and end > at + len(_UNIQ_KEY) and (at == 0 or properties[at - 1] == 2):
        rest = properties[:at] + properties[end + 1 :]
        shape = shapes.get(rest)
        if shape is None and len(shapes) < _SHAPES_MAX and _UNIQ_KEY not in rest:
            tags, keys, _ = dispatch_properties(rest)
            shape = shapes[rest] = tags_code(tags) if tags else 0, keys
        if shape is not None:
            return *shape, properties[at + len(_UNIQ_KEY) : end].decode("utf-8", "replace")
    tags, keys, uniq_key = dispatch_properties(properties)
    return tags_code(tags) if tags else 0, keys, uniq_key


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
