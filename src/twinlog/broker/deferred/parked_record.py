"""A message that waits, read from its record as far as its delivery needs it, and the draft that delivers it.

A fast path: it runs for each message that is due, and for each transaction that ends. What it trades: `decode_message`
and `parking.redelivery` are the definitions. Here hosts are cached, the properties are decoded but stored again as they
are, unless writing them would change them, and the index gets the keys that were just decoded. A record that is not the
usual one (IPv6, a long topic) takes the plain codec. A property test holds both equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from twinlog.store.log.append import Draft
from twinlog.wire.checksum import crc32
from twinlog.wire.java_text import tags_code
from twinlog.wire.properties import KEYS, PAIR_END, TAGS, UNIQ_KEY, decode_properties, encode_properties
from twinlog.wire.record_layout import HEAD_BYTES, HEADS, MAGIC_V1, PROPERTIES_LENGTH, RECORD_BYTES_MIN
from twinlog.wire.values.message_id import decode_host
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from twinlog.store.message_store import MessageStore

_V6 = BORN_HOST_V6 | STORE_HOST_V6
_PAIR_END = PAIR_END.encode()
_unpack_head = HEADS[0].unpack_from
_host = lru_cache(maxsize=4096)(decode_host)


class ParkedRecord(msgspec.Struct, gc=False):
    """What a stored message consists of; members are named as those of `Message`."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    reconsume_times: int
    body: bytes
    properties: dict[str, str]
    text: bytes  # of the properties


def parked_at(store: MessageStore, physical_offset: int, size: int | None = None) -> ParkedRecord | None:
    """The message whose record begins there; None when there is none."""
    record = store.whole_record_at(physical_offset, size)
    if record is None:
        return None
    found = decode_parked(record)
    if found is None:
        return _plain(store, physical_offset, size)
    return found if found.physical_offset == physical_offset else None


def decode_parked(record: memoryview) -> ParkedRecord | None:
    """What the record of an ordinary message says; None when `decode_message` must decide."""
    length = len(record)
    if length < RECORD_BYTES_MIN:
        return None
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born, _, _,
        reconsume_times, _, body_length,
    ) = _unpack_head(record)  # fmt: skip
    topic_at = HEAD_BYTES + body_length
    if magic != MAGIC_V1 or size != length or sys_flag & _V6 or not HEAD_BYTES <= topic_at <= length - 3:
        return None
    body, rest = bytes(record[HEAD_BYTES:topic_at]), bytes(record[topic_at:])
    text_at = 1 + rest[0] + PROPERTIES_LENGTH.size
    text = rest[text_at:]
    if crc32(body) & 0x7FFFFFFF != crc or rest[text_at - 2 : text_at] != len(text).to_bytes(2, "big"):
        return None
    try:
        topic = rest[1 : text_at - 2].decode()
    except UnicodeDecodeError:
        return None
    return ParkedRecord(
        topic, queue_id, queue_offset, physical_offset, flag, sys_flag, born_timestamp, _host(born), reconsume_times,
        body, decode_properties(text), text,
    )  # fmt: skip


def delivery(parked: ParkedRecord, topic: str, queue_id: int) -> Draft:
    """The draft of this message for another queue, as `redelivery` makes it."""
    pairs, text = parked.properties, parked.text
    # Each pair of the text is in `pairs`, and ends as they are written: then it is what would be written.
    if not (text.isascii() and text.count(_PAIR_END) == len(pairs) and text.endswith(_PAIR_END)):
        text = encode_properties(pairs)
    return Draft(
        topic,
        queue_id,
        parked.body,
        text,
        parked.born_host,
        parked.born_timestamp,
        parked.flag,
        parked.sys_flag,
        parked.reconsume_times,
        found=(tags_code(pairs.get(TAGS, "")), pairs.get(KEYS, ""), pairs.get(UNIQ_KEY)),
    )


def _plain(store: MessageStore, physical_offset: int, size: int | None) -> ParkedRecord | None:
    one = store.message_at(physical_offset, size)
    if one is None:
        return None
    return ParkedRecord(
        one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.flag, one.sys_flag, one.born_timestamp,
        one.born_host, one.reconsume_times, one.body, one.properties, encode_properties(one.properties),
    )  # fmt: skip
