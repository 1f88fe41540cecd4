"""The hot path of a send: one message becomes one record at the end of the log.

What it trades for speed: `encode_message` of the wire package is the definition of the format, and this module repeats
it with everything cached that can be (topic bytes, host bytes, next queue offsets), writing straight into the mapped
segment. A property test holds both equal.

The body and what follows it are written first and the head last. A process that is killed in the middle leaves no
record behind, rather than a torn one.

Sizes (§12 of the format): a record above the limit, a body above maxMessageSize, properties above 32767 bytes or an
invalid topic name give a status, never an exception and never a byte in the log.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence

import msgspec

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.appender import PACKED_LENGTHS, Appender, QueueCursor
from twinlog.store.log.record_crc import crc_property, ends_in_crc, for_crc, without_crc
from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.checksum import crc32
from twinlog.wire.java_text import tags_code
from twinlog.wire.properties import INNER_BASE, INNER_NUM, PROPERTIES_BYTES_MAX, decode_properties, encode_properties
from twinlog.wire.record_layout import BLANK_BYTES, HEAD_BYTES, HEADS, HOST_BYTES, PROPERTIES_LENGTH
from twinlog.wire.values.sys_flag import BORN_HOST_V6, INNER_BATCH, NEED_UNWRAP, STORE_HOST_V6, TRANSACTION_HIDDEN

_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
_IPV4_HEAD = HEADS[0]
_IPV4_HOSTS_BYTES = 2 * HOST_BYTES


class PutStatus(enum.Enum):
    """The result of an append; only the first four mean that the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_SEGMENT_FAILED = "CREATE_SEGMENT_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    PAGE_CACHE_BUSY = "PAGE_CACHE_BUSY"


class Draft(msgspec.Struct, gc=False):
    """A message on its way into the log; the store adds offsets, time and checksum."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""  # in text form, as it will be stored
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    born_timestamp: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_host: tuple[str, int] | None = None  # the store's own unless given
    inner_count: int = 0  # > 0: the body is an inner batch of so many messages, for a BatchCQ topic
    found: tuple[int, str, str | None] | None = None  # tags code, keys and unique key, when the caller knows them


class Appended(msgspec.Struct, gc=False):
    """Where a message was stored, or the reason why it was not."""

    status: PutStatus
    physical_offset: int = -1
    size: int = 0  # of all records of a batch together
    queue_offset: int = -1
    store_timestamp: int = 0
    end: int = 0  # the log end after it: flushed and replicated up to here means safe
    physical_offsets: tuple[int, ...] = ()  # of each record, for a batch

    @property
    def ok(self) -> bool:
        return self.status is PutStatus.PUT_OK


_PUT_OK = PutStatus.PUT_OK
Plan = tuple[QueueCursor, struct.Struct, int, int, bytes, bytes, bytes, bytes, int]
"""queue, head, size of the record, system flag, born host, store host, length of the properties, properties, bytes of
the record's checksum"""


def append(appender: Appender, draft: Draft, timestamp: int | None = None) -> Appended:
    """Store one message; its store timestamp is the clock's, or the one that is given for all of a batch."""
    plan = _plan(appender, draft)
    if not isinstance(plan, tuple):
        return Appended(plan)
    queue, head, size, sys_flag, born, store, packed_length, properties, crc_bytes = plan
    log = appender.log
    body, queue_id, prepared = draft.body, draft.queue_id, draft.prepared_transaction_offset
    physical_offset = log.log_end
    if physical_offset + size > appender.ready_end:
        if not appender.make_ready(size):
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        physical_offset = log.log_end
    memory = appender.memory
    assert memory is not None
    position = physical_offset - appender.base
    end = position + size
    if timestamp is None:
        timestamp = appender.clock_ms()
    if timestamp < appender.last_timestamp:
        timestamp = appender.last_timestamp
    is_queued = not sys_flag & TRANSACTION_HIDDEN
    queue_offset = queue.next_offset if is_queued else 0
    try:
        packed = head.pack(
            size, queue.magic, crc32(body) & 0x7FFFFFFF, queue_id, draft.flag, queue_offset,
            physical_offset, sys_flag, draft.born_timestamp, born, timestamp, store, draft.reconsume_times, prepared,
            len(body),
        )  # fmt: skip
    except struct.error:  # a number does not fit its field
        return Appended(PutStatus.MESSAGE_ILLEGAL)
    rest = b"".join((body, queue.topic_bytes, packed_length, properties))
    if crc_bytes:
        memory[end - crc_bytes : end] = crc_property(rest, crc32(packed))
    memory[position + head.size : end - crc_bytes] = rest
    memory[position : position + head.size] = packed

    appender.last_timestamp = timestamp
    log.log_end = log_end = physical_offset + size
    batch_size = draft.inner_count or 1
    if is_queued:
        queue.next_offset = queue_offset + batch_size
    found = draft.found
    if found is None:
        tags, keys, uniq_key = dispatch_properties(properties)
        code = tags_code(tags) if tags else 0
    else:
        code, keys, uniq_key = found
    if queue.is_schedule:
        code = appender.delay_levels.delivery_time(properties, timestamp, code)
    request = DispatchRequest(
        draft.topic, queue_id, physical_offset, size, code, timestamp, queue_offset, keys, uniq_key, sys_flag, prepared,
        properties, batch_size,
    )  # fmt: skip
    appender.pending.append(request)
    return Appended(_PUT_OK, physical_offset, size, queue_offset, timestamp, log_end)


def append_drafts(appender: Appender, drafts: Sequence[Draft]) -> Appended:
    """Store the messages of one batch next to each other in one segment, all or none of them."""
    room = 0
    for draft in drafts:
        plan = _plan(appender, draft)
        if not isinstance(plan, tuple):
            return Appended(plan)
        if draft.inner_count or not _fits_fields(draft, plan):
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        room += plan[2]
    log = appender.log
    if not drafts or room + BLANK_BYTES > log.segment_size:
        return Appended(PutStatus.MESSAGE_ILLEGAL)
    if log.log_end + room > appender.ready_end:
        appender.make_ready(room)
    now_ms = max(appender.clock_ms(), appender.last_timestamp)
    stored = [append(appender, draft, now_ms) for draft in drafts]
    offsets = tuple(one.physical_offset for one in stored)
    return Appended(_PUT_OK, offsets[0], room, stored[0].queue_offset, now_ms, log.log_end, offsets)


def _plan(appender: Appender, draft: Draft) -> Plan | PutStatus:
    """What the record of a draft consists of, or why it is refused. Nothing is written."""
    store = appender.store_host if draft.store_host is None else appender.host(draft.store_host)
    try:
        queue, born = appender.queues[draft.topic, draft.queue_id], appender.hosts[draft.born_host]
    except KeyError:  # the first message of a queue or a sender
        queue, born = appender.queue(draft.topic, draft.queue_id), appender.host(draft.born_host)
    body_length = len(draft.body)
    if queue is None or born is None or store is None or body_length > appender.body_bytes_max:
        return PutStatus.MESSAGE_ILLEGAL
    properties, sys_flag = draft.properties, draft.sys_flag
    if draft.inner_count:
        sys_flag |= INNER_BATCH | NEED_UNWRAP
        properties = _with_inner_batch(properties, draft.inner_count, queue.next_offset)
    crc_bytes, given = appender.crc_bytes, properties
    properties = for_crc(given) if crc_bytes else without_crc(given)
    length = len(properties) + crc_bytes
    if length > PROPERTIES_BYTES_MAX:
        properties, crc_bytes = without_crc(given), 0
        length = len(properties)
        if length > PROPERTIES_BYTES_MAX or appender.crc_forced or ends_in_crc(properties):
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
    head, size = _IPV4_HEAD, queue.fixed_bytes + body_length + length
    if len(born) + len(store) != _IPV4_HOSTS_BYTES or sys_flag & _HOST_BITS:
        kind = (len(born) != HOST_BYTES) + 2 * (len(store) != HOST_BYTES)
        head, sys_flag = HEADS[kind], sys_flag & ~_HOST_BITS | kind * BORN_HOST_V6
        size += head.size - HEAD_BYTES
    if size > appender.record_bytes_max:
        return PutStatus.MESSAGE_ILLEGAL
    length = PACKED_LENGTHS[length] if length < 4096 else PROPERTIES_LENGTH.pack(length)
    return queue, head, size, sys_flag, born, store, length, properties, crc_bytes


def _with_inner_batch(properties: bytes, count: int, base: int) -> bytes:
    pairs = decode_properties(properties)
    pairs[INNER_NUM], pairs[INNER_BASE] = str(count), str(base)
    return encode_properties(pairs)


def _fits_fields(draft: Draft, plan: Plan) -> bool:
    """Whether each number of the draft fits its field of the head."""
    _, head, size, sys_flag, born, store, _, _, _ = plan
    reconsumed, prepared = draft.reconsume_times, draft.prepared_transaction_offset
    try:
        head.pack(
            size, 0, 0, draft.queue_id, draft.flag, 0, 0, sys_flag, draft.born_timestamp,
            born, 0, store, reconsumed, prepared, 0,
        )  # fmt: skip
    except struct.error:
        return False
    return True
