"""Many messages of one sender at once: the hot path of pipelined sends.

What it trades: `append` decides each message for itself. This function looks up clock, hosts and segment
once, packs all heads and bodies into one piece, and copies that piece into the mapped log. It takes messages
only as long as they are ordinary (IPv4 on both sides, not hidden by a transaction, no inner batch, a queue with a
cursor, within all limits and within the part of the segment that is ready), and stops before the first that is not:
`append` takes that one. Delayed messages and half messages are ordinary messages of their own topics. A property test
holds both equal.

All of a run becomes visible with its first eight bytes, written last: a process that is killed in the middle
leaves no record of the run behind.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.appender import PACKED_LENGTHS, Appender
from twinlog.store.log.record_crc import CRC_NAME, CRC_SIGN, crc_property
from twinlog.wire.checksum import crc32
from twinlog.wire.record_layout import HEAD_BYTES, HEADS, HOST_BYTES, TIMESTAMP
from twinlog.wire.values.sys_flag import BORN_HOST_V6, INNER_BATCH, NEED_UNWRAP, STORE_HOST_V6, TRANSACTION_MASK

Row = tuple[str, int, bytes, bytes, int, int, int, int, int, str, str | None]
"""topic, queue id, body, properties, born timestamp, flag, system flag, reconsumed, tags code, keys, unique key"""

UNUSUAL_FLAGS = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_MASK | INNER_BATCH | NEED_UNWRAP
PAIR_END = 2  # the byte behind each property
# The head with both hosts and the store timestamp between them in one piece: all records of a run share it.
_HEAD = struct.Struct(HEADS[0].format.replace(f"{HOST_BYTES}sq{HOST_BYTES}s", f"{2 * HOST_BYTES + TIMESTAMP.size}s"))
_COPIED_BYTES_MAX = 4096  # up to this size a copy is faster than a view


def append_run(appender: Appender, born_host: tuple[str, int], rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    """Store the ordinary messages at the front of `rows`; (physical offset, queue offset, size) of each."""
    born = appender.host(born_host)
    store, memory, log = appender.store_host, appender.memory, appender.log
    if born is None or len(born) != HOST_BYTES or len(store) != HOST_BYTES or memory is None:
        return []
    timestamp = appender.clock_ms()
    if timestamp < appender.last_timestamp:
        timestamp = appender.last_timestamp
    queues, ready_end, body_max = appender.queues, appender.ready_end, appender.body_bytes_max
    crc_bytes = appender.crc_bytes
    pack, packed_lengths, hosts = _HEAD.pack, PACKED_LENGTHS, born + TIMESTAMP.pack(timestamp) + store
    begin = at = log.log_end
    parts: list[bytes] = []
    places: list[tuple[int, int, int]] = []
    requests: list[DispatchRequest] = []
    last_topic, last_queue_id, queue, topic_bytes, magic = "", -1, None, b"", 0
    try:
        for (
            topic, queue_id, body, properties, born_timestamp, flag, sys_flag, reconsume_times, code, keys, uniq_key,
        ) in rows:  # fmt: skip
            if queue_id != last_queue_id or topic != last_topic or queue is None:
                queue = queues.get((topic, queue_id))
                if queue is None:
                    break
                last_topic, last_queue_id = topic, queue_id
                topic_bytes, magic = queue.topic_bytes, queue.magic
            if crc_bytes and properties and properties[-1] != PAIR_END:
                properties += b"\x02"
            body_length, properties_length = len(body), len(properties) + crc_bytes
            size = HEAD_BYTES + body_length + len(topic_bytes) + 2 + properties_length
            end = at + size
            if end > ready_end or body_length > body_max or properties_length > 4095 or sys_flag & UNUSUAL_FLAGS:
                break
            if CRC_SIGN in properties and CRC_NAME in properties:  # of a record that the message had before
                break
            queue_offset = queue.next_offset
            head = pack(
                size,
                magic,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                at,
                sys_flag,
                born_timestamp,
                hosts,
                reconsume_times,
                0,
                body_length,
            )
            if crc_bytes:
                record = b"".join((head, body, topic_bytes, packed_lengths[properties_length], properties))
                parts += (record, crc_property(record))
            else:
                parts += (head, body, topic_bytes, packed_lengths[properties_length], properties)
            if queue.is_schedule:
                code = appender.delay_levels.delivery_time(properties, timestamp, code)
            requests.append(
                DispatchRequest(
                    topic,
                    queue_id,
                    at,
                    size,
                    code,
                    timestamp,
                    queue_offset,
                    keys,
                    uniq_key,
                    sys_flag,
                    0,
                    properties,
                )
            )
            places.append((at, queue_offset, size))
            queue.next_offset = queue_offset + 1
            at = end
    except struct.error:  # a number does not fit its field: `append` returns the status
        pass
    if places:
        joined: bytes | memoryview = b"".join(parts)
        if len(joined) > _COPIED_BYTES_MAX:
            joined = memoryview(joined)
        position = begin - appender.base
        memory[position + 8 : position + at - begin] = joined[8:]
        memory[position : position + 8] = joined[:8]
        appender.last_timestamp = timestamp
        appender.pending += requests
        log.log_end = at
    return places
