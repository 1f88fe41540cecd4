"""A message and its record: the plain codec, which defines what a valid record is.

`record_layout` draws the bytes.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from twinlog.wire import properties as names
from twinlog.wire.checksum import crc32
from twinlog.wire.compression import decompress
from twinlog.wire.errors import RecordError
from twinlog.wire.java_text import utf16_length
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.record_layout import (
    BEFORE_HOSTS,
    BEHIND_HOSTS,
    HEAD_BYTES,
    HEADS,
    HOST_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    RECORD_BYTES_MIN,
    TIMESTAMP,
    TOPIC_BYTES_V1_MAX,
)
from twinlog.wire.values import sys_flag
from twinlog.wire.values.message_id import decode_host, encode_host, offset_message_id

_HOSTS_V6 = sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6


@dataclass(slots=True, kw_only=True)
class Message:
    """One stored message, every field of its record."""

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    store_timestamp: int = 0
    store_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = field(default_factory=dict[str, str])
    body_crc: int = 0
    store_size: int = 0
    version: int = 1

    @property
    def tags(self) -> str:
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(*self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What users call the message id: the sender's unique key, else the offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def decoded_body(self) -> bytes:
        """The body as the sender gave it, decompressed if need be."""
        return decompress(self.body, self.sys_flag)


def body_crc(body: bytes | memoryview) -> int:
    return crc32(body) & 0x7FFFFFFF


def encode_message(message: Message) -> bytes:
    """The record of `message`; sizes, CRC, version and IPv6 bits are computed here."""
    topic, properties = message.topic.encode(), encode_properties(message.properties)
    version = 2 if utf16_length(message.topic) > TOPIC_BYTES_V1_MAX else 1
    if len(topic) > (0x7FFF if version == 2 else TOPIC_BYTES_V1_MAX):
        raise RecordError(f"topic of {len(topic)} bytes does not fit a V{version} record")
    if len(properties) > names.PROPERTIES_BYTES_MAX:
        raise RecordError(f"properties of {len(properties)} bytes are above {names.PROPERTIES_BYTES_MAX}")
    born, store = encode_host(message.born_host), encode_host(message.store_host)
    flags = message.sys_flag & ~(sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6)
    flags |= sys_flag.BORN_HOST_V6 if len(born) > HOST_BYTES else 0
    flags |= sys_flag.STORE_HOST_V6 if len(store) > HOST_BYTES else 0
    topic_length = len(topic).to_bytes(version, "big")
    size = HEAD_BYTES - 2 * HOST_BYTES + len(born) + len(store)
    size += len(message.body) + version + len(topic) + PROPERTIES_LENGTH.size + len(properties)
    before_hosts = BEFORE_HOSTS.pack(
        size,
        MAGIC_V2 if version == 2 else MAGIC_V1,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        flags,
        message.born_timestamp,
    )
    behind_hosts = BEHIND_HOSTS.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body))
    head = before_hosts + born + TIMESTAMP.pack(message.store_timestamp) + store + behind_hosts
    return b"".join((head, message.body, topic_length, topic, PROPERTIES_LENGTH.pack(len(properties)), properties))


def decode_message(buffer: bytes | bytearray | memoryview, at: int = 0, *, check_crc: bool = True) -> Message:
    """The message whose record starts at `at`; RecordError when it is torn or corrupt."""
    try:
        return _decode(buffer, at, check_crc)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise RecordError(f"record at byte {at} does not parse: {error}") from error


def decode_messages(buffer: bytes | memoryview) -> list[Message]:
    """All messages of a pull, query or view body, which stand back to back."""
    messages: list[Message] = []
    at = 0
    while at < len(buffer):
        message = decode_message(buffer, at)
        messages.append(message)
        at += message.store_size
    return messages


def _decode(buffer: bytes | bytearray | memoryview, at: int, check_crc: bool) -> Message:
    head = HEADS[0]
    values: tuple[Any, ...] = head.unpack_from(buffer, at)
    size, magic = values[:2]
    flags: int = values[7]
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"not a record at byte {at}: magic {magic:#x}")
    if size < RECORD_BYTES_MIN or at + size > len(buffer):
        raise RecordError(f"record at byte {at} has size {size}, but {len(buffer) - at} bytes are left")
    if flags & _HOSTS_V6:
        head = HEADS[bool(flags & sys_flag.BORN_HOST_V6) + 2 * bool(flags & sys_flag.STORE_HOST_V6)]
        values = head.unpack_from(buffer, at)
    crc, queue_id, flag, queue_offset, physical_offset, _, born_timestamp, born, store_timestamp, store = values[2:12]
    reconsume_times, prepared, body_length = values[12:]
    end, version = at + size, 2 if magic == MAGIC_V2 else 1
    body_at = at + head.size
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + version > end:
        raise RecordError(f"record at byte {at}: body of {body_length} bytes does not fit its {size}")
    body = bytes(buffer[body_at:topic_at])
    if check_crc and crc != (found := body_crc(body)):
        raise RecordError(f"record at byte {at}: body CRC {found} differs from the stored {crc}")
    topic_length = int.from_bytes(buffer[topic_at : topic_at + version], "big", signed=True)
    properties_at = topic_at + version + topic_length
    if topic_length < 0 or properties_at + 2 > end:
        raise RecordError(f"record at byte {at}: topic of {topic_length} bytes does not fit its {size}")
    (properties_length,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_at)
    if properties_length < 0 or properties_at + 2 + properties_length != end:
        raise RecordError(f"record at byte {at}: properties of {properties_length} bytes do not end it at {size}")
    return Message(
        topic=str(buffer[topic_at + version : properties_at], "utf-8"),
        body=body,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=flags,
        born_timestamp=born_timestamp,
        born_host=decode_host(born),
        store_timestamp=store_timestamp,
        store_host=decode_host(store),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        properties=decode_properties(bytes(buffer[properties_at + 2 : end])),
        body_crc=crc,
        store_size=size,
        version=version,
    )
