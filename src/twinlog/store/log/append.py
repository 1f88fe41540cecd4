"""The hot path of a send: one message becomes one record at the end of the log.

What it trades for speed: `encode_message` of the wire package is the definition of the format, and this
module repeats it with everything that can be remembered remembered (topic bytes, host bytes, tag
hashes, next queue offsets), writing straight into the mapped segment. A property test holds both equal.

The body and what follows it are written first and the fixed head last, so a process that is killed
in the middle leaves no record at all behind, rather than a torn one.

Sizes (§12 of the format): a record above the limit, a body above maxMessageSize, properties above 32767
bytes or a bad topic name give a status, never an exception and never a byte in the log.
"""

from __future__ import annotations

import enum
import mmap
import struct
from collections.abc import Callable, Sequence

import msgspec

from twinlog.base.system_names import RETRY_PREFIX, SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.record_crc import CRC_PROPERTY_BYTES, crc_property, with_separator
from twinlog.wire.checksum import crc32
from twinlog.wire.errors import WireError
from twinlog.wire.java_text import tags_code, utf16_length
from twinlog.wire.message_id import encode_host
from twinlog.wire.properties import INNER_BASE, INNER_NUM, PROPERTIES_BYTES_MAX, decode_properties, encode_properties
from twinlog.wire.property_scan import dispatch_properties
from twinlog.wire.record_layout import (
    BLANK_BYTES,
    HEAD_BYTES,
    HEADS,
    HOST_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_BYTES_V1_MAX,
)
from twinlog.wire.sys_flag import (
    BORN_HOST_V6,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from twinlog.wire.topic_name import is_topic

TOPIC_BYTES_MAX = 255  # only %RETRY% topics may be longer than 127
RECORD_SLACK = 64 * 1024  # a record may exceed maxMessageSize by topic and properties
_REMEMBERED_MAX = 65536
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6

PACKED_LENGTHS = [PROPERTIES_LENGTH.pack(n) for n in range(4096)]


class PutStatus(enum.Enum):
    """What became of a message; only the first four mean that it is in the log."""

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
    """A message on its way into the log; the store adds place, time and checksum."""

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
    """The place of a stored message, or the reason why there is none."""

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


class _Lane:
    """What a queue's next append needs to know."""

    __slots__ = ("is_schedule", "magic", "next_offset", "topic_bytes")

    def __init__(self, magic: int, topic_bytes: bytes, next_offset: int, is_schedule: bool) -> None:
        self.magic = magic
        self.topic_bytes = topic_bytes  # with its length in front
        self.next_offset = next_offset
        self.is_schedule = is_schedule


class Appender:
    """Writes messages to the end of `log` and leaves a dispatch request for each in `pending`."""

    def __init__(
        self,
        log: CommitLog,
        *,
        store_host: tuple[str, int],
        clock_ms: Callable[[], int],
        next_offset: Callable[[str, int], int],
        delay_levels: DelayLevels,
        message_size_max: int = 4 * 1024 * 1024,
        append_crc: bool = False,
        long_topics: bool = True,
    ) -> None:
        self.pending: list[DispatchRequest] = []
        self.last_timestamp = 0
        self._log = log
        self._clock_ms = clock_ms
        self._next_offset = next_offset
        self._delay_levels = delay_levels
        self.limit_messages(message_size_max)
        self._append_crc = append_crc
        self._long_topics = long_topics
        self._store_host = encode_host(store_host)
        self._hosts: dict[tuple[str, int], bytes] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        # The part of the last segment that is mapped, populated and free for records: up to `_ready_end`.
        self._memory: mmap.mmap | None = None
        self._base = 0
        self._ready_end = -1

    def append(self, draft: Draft) -> Appended:
        """Store one message."""
        topic, body, properties, sys_flag = draft.topic, draft.body, draft.properties, draft.sys_flag
        lane = self._lanes.get((topic, draft.queue_id))
        if lane is None:
            lane = self._open_lane(topic, draft.queue_id)
            if lane is None:
                return Appended(PutStatus.MESSAGE_ILLEGAL)
        batch_size = 1
        if draft.inner_count:
            sys_flag |= INNER_BATCH | NEED_UNWRAP
            batch_size = draft.inner_count
            properties = _with_inner_batch(properties, batch_size, lane.next_offset)
        if self._append_crc:
            properties = with_separator(properties)
        crc_bytes = CRC_PROPERTY_BYTES if self._append_crc else 0

        born = self._hosts.get(draft.born_host) or self._remember_host(draft.born_host)
        store = self._store_host
        if draft.store_host is not None:
            store = self._hosts.get(draft.store_host) or self._remember_host(draft.store_host)
        if born is None or store is None:
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        kind = 0
        if len(born) == 20:
            kind = 1
        if len(store) == 20:
            kind += 2
        if kind or sys_flag & _HOST_BITS:
            sys_flag = sys_flag & ~_HOST_BITS | kind << 4
        head = HEADS[kind]

        body_length, properties_length = len(body), len(properties) + crc_bytes
        if body_length > self._body_max:
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        if properties_length > PROPERTIES_BYTES_MAX:
            return Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        size = head.size + body_length + len(lane.topic_bytes) + 2 + properties_length
        if size > self._record_max:
            return Appended(PutStatus.MESSAGE_ILLEGAL)

        log = self._log
        if log.log_end + size > self._ready_end and not self._make_ready(size):
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        physical_offset = log.log_end
        position = physical_offset - self._base
        end = position + size

        transaction = sys_flag & TRANSACTION_MASK
        counted = transaction != TRANSACTION_PREPARED and transaction != TRANSACTION_ROLLBACK
        queue_offset = lane.next_offset if counted else 0
        timestamp = self._clock_ms()
        if timestamp < self.last_timestamp:
            timestamp = self.last_timestamp
        length = (
            PACKED_LENGTHS[properties_length] if properties_length < 4096 else PROPERTIES_LENGTH.pack(properties_length)
        )

        memory = self._memory
        assert memory is not None
        memory[position + head.size : end - crc_bytes] = b"".join((body, lane.topic_bytes, length, properties))
        try:
            head.pack_into(
                memory,
                position,
                size,
                lane.magic,
                crc32(body) & 0x7FFFFFFF,
                draft.queue_id,
                draft.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                draft.born_timestamp,
                born,
                timestamp,
                store,
                draft.reconsume_times,
                draft.prepared_transaction_offset,
                body_length,
            )
        except struct.error:  # a number that its field cannot hold; what was written is overwritten or cut
            memory[position:end] = bytes(size)
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        if crc_bytes:
            memory[end - crc_bytes : end] = crc_property(memory, position, end - crc_bytes)

        self.last_timestamp = timestamp
        log.log_end = physical_offset + size
        if counted:
            lane.next_offset = queue_offset + batch_size
        if draft.found is None:
            tags, keys, uniq_key = dispatch_properties(properties)
            code = tags_code(tags) if tags else 0
        else:
            code, keys, uniq_key = draft.found
        if lane.is_schedule:
            code = self._delay_levels.delivery_time(properties, timestamp, code)
        self.pending.append(
            DispatchRequest(
                topic,
                draft.queue_id,
                physical_offset,
                size,
                code,
                timestamp,
                queue_offset,
                keys,
                uniq_key,
                sys_flag,
                draft.prepared_transaction_offset,
                properties,
                batch_size,
            )
        )
        return Appended(_PUT_OK, physical_offset, size, queue_offset, timestamp, log.log_end)

    def append_batch(self, drafts: Sequence[Draft]) -> Appended:
        """Store messages of one batch next to each other in one file, all or none of them."""
        room = 0
        for draft in drafts:
            size = self._measure(draft)
            if isinstance(size, PutStatus):
                return Appended(size)
            room += size
        if not drafts or room + BLANK_BYTES > self._log.segment_size:
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        if self._log.log_end + room + BLANK_BYTES > self._log.tail().end:
            self._log.roll()
            self._ready_end = -1
        now = max(self._clock_ms(), self.last_timestamp)
        clock, self._clock_ms = self._clock_ms, lambda: now
        try:
            stored = [self.append(draft) for draft in drafts]
        finally:
            self._clock_ms = clock
        first, offsets = stored[0], tuple(one.physical_offset for one in stored)
        return self.batch_appended(first.physical_offset, room, first.queue_offset, now, offsets)

    def batch_appended(
        self, physical_offset: int, size: int, queue_offset: int, timestamp: int, offsets: tuple[int, ...]
    ) -> Appended:
        """The places of a batch that was stored just now."""
        return Appended(_PUT_OK, physical_offset, size, queue_offset, timestamp, self._log.log_end, offsets)

    def forget(self, topic: str | None = None) -> None:
        """Ask for next queue offsets anew, of one topic or of all: its queues or the log have changed."""
        if topic is None:
            self._lanes.clear()
        else:
            for key in [key for key in self._lanes if key[0] == topic]:
                del self._lanes[key]
        self._memory, self._ready_end = None, -1

    def limit_messages(self, message_size_max: int) -> None:
        """Take bodies up to this size from now on."""
        self._body_max = message_size_max
        self._record_max = message_size_max + RECORD_SLACK

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next message of this queue will get."""
        lane = self._lanes.get((topic, queue_id))
        return self._next_offset(topic, queue_id) if lane is None else lane.next_offset

    def _make_ready(self, size: int) -> bool:
        """Prepare room for a record at the log's end, in a new segment if need be; False if none is large enough."""
        log = self._log
        segment = log.tail()
        if log.log_end + size + BLANK_BYTES > segment.end:
            if size + BLANK_BYTES > segment.size:
                return False
            segment = log.roll()
        self._memory, self._base = segment.map, segment.base
        populated = segment.populate(log.log_end - segment.base + size)
        self._ready_end = min(segment.base + populated, segment.end - BLANK_BYTES)
        log.allocate_ahead()
        return True

    def _open_lane(self, topic: str, queue_id: int) -> _Lane | None:
        try:
            topic_bytes = topic.encode()
        except UnicodeEncodeError:
            return None
        if not is_topic(topic):
            return None
        limit = TOPIC_BYTES_MAX if topic.startswith(RETRY_PREFIX) else TOPIC_BYTES_V1_MAX
        long = self._long_topics and utf16_length(topic) > TOPIC_BYTES_V1_MAX
        if not 0 < len(topic_bytes) <= limit or (len(topic_bytes) > TOPIC_BYTES_V1_MAX and not long):
            return None
        if not -0x8000_0000 <= queue_id < 0x8000_0000:
            return None
        prefix = len(topic_bytes).to_bytes(2 if long else 1, "big")
        offset = self._next_offset(topic, queue_id)
        lane = _Lane(MAGIC_V2 if long else MAGIC_V1, prefix + topic_bytes, offset, topic == SCHEDULE_TOPIC)
        if len(self._lanes) >= _REMEMBERED_MAX:
            self._lanes.clear()
        self._lanes[topic, queue_id] = lane
        return lane

    def _remember_host(self, host: tuple[str, int]) -> bytes | None:
        try:
            packed = encode_host(host)
        except (ValueError, WireError):
            return None
        if len(self._hosts) >= _REMEMBERED_MAX:
            self._hosts.clear()
        self._hosts[host] = packed
        return packed

    def _measure(self, draft: Draft) -> int | PutStatus:
        """The size of the record a draft of a batch will make, or why it makes none."""
        lane = self._lanes.get((draft.topic, draft.queue_id)) or self._open_lane(draft.topic, draft.queue_id)
        born, store = self._hosts.get(draft.born_host) or self._remember_host(draft.born_host), self._store_host
        if draft.store_host is not None:
            store = self._hosts.get(draft.store_host) or self._remember_host(draft.store_host)
        if lane is None or born is None or store is None or draft.inner_count or len(draft.body) > self._body_max:
            return PutStatus.MESSAGE_ILLEGAL
        properties_length = len(draft.properties)
        if self._append_crc:
            properties_length = len(with_separator(draft.properties)) + CRC_PROPERTY_BYTES
        if properties_length > PROPERTIES_BYTES_MAX:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        ints = (draft.flag, draft.sys_flag, draft.reconsume_times)
        longs = (draft.born_timestamp, draft.prepared_transaction_offset)
        if any(number != _int_of(number, 32) for number in ints) or any(n != _int_of(n, 64) for n in longs):
            return PutStatus.MESSAGE_ILLEGAL
        fixed = HEAD_BYTES - 2 * HOST_BYTES + len(born) + len(store)
        size = fixed + len(draft.body) + len(lane.topic_bytes) + 2 + properties_length
        return size if size <= self._record_max else PutStatus.MESSAGE_ILLEGAL


_PUT_OK = PutStatus.PUT_OK


def _with_inner_batch(properties: bytes, count: int, base: int) -> bytes:
    pairs = decode_properties(properties)
    pairs[INNER_NUM], pairs[INNER_BASE] = str(count), str(base)
    return encode_properties(pairs)


def _int_of(number: int, bits: int) -> int:
    """`number` as a signed integer of so many bits would keep it."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half
