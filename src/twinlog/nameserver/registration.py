"""The body of a registration, in its three forms.

    version >= 37      {"filterServerList": [...], "topicConfigSerializeWrapper": {...}}
    version < 37       the wrapper alone: {"dataVersion": ..., "topicConfigTable": ...}
    compressed=true    zlib over these parts, every number a 4-byte integer:

    | length | data version JSON |
    | topics | length | name read write perm FILTER {attributes} | ...
    | length | filter server list JSON |
    | mappings | length | mapping JSON | ...          only since version 413

The compressed form loses a topic's flags, in Java too.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgspec

from twinlog.wire.bodies import Body, DataVersion, decode_body
from twinlog.wire.errors import BodyError, WireError
from twinlog.wire.fastjson import loads

VERSION_WITH_FILTER_SERVERS = 37
VERSION_WITH_MAPPINGS = 413
INFLATED_BYTES_MAX = 128 * 1024 * 1024
_INT = struct.Struct(">i")


class RegisteredTopic(msgspec.Struct, rename="camel", gc=False):
    """The part of a topic that routes need. Leaving the rest unread makes 100,000 topics four times as fast."""

    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


class RegisteredTable(Body):
    topic_config_table: dict[str, RegisteredTopic] = msgspec.field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, Any] | None = None


class RegistrationBody(Body):
    topic_config_serialize_wrapper: RegisteredTable = msgspec.field(default_factory=RegisteredTable)
    filter_server_list: list[str] | None = None


def decode_registration(body: bytes | None, *, version: int, compressed: bool) -> RegistrationBody:
    """The topics that a broker registers; no body means none."""
    if not body:
        return RegistrationBody()
    if version < VERSION_WITH_FILTER_SERVERS:
        return RegistrationBody(topic_config_serialize_wrapper=decode_body(RegisteredTable, body))
    if compressed:
        return _decode_compressed(body, version)
    return decode_body(RegistrationBody, body)


def body_crc32(body: bytes | None) -> int:
    return zlib.crc32(body or b"") & 0x7FFFFFFF


def _decode_compressed(body: bytes, version: int) -> RegistrationBody:
    parts = _Parts(_inflate(body))
    table = RegisteredTable(data_version=_data_version(parts.take_text()))
    for _ in range(parts.take_count()):
        name, topic = _topic(parts.take_text())
        table.topic_config_table[name] = topic
    filter_servers = loads(parts.take_text())
    if not isinstance(filter_servers, list) or not all(isinstance(one, str) for one in filter_servers):
        raise BodyError(f"filter servers {str(filter_servers)[:80]!r} are not a list of addresses")
    if version >= VERSION_WITH_MAPPINGS:
        mappings: dict[str, Any] = {}
        for _ in range(parts.take_count()):
            mapping = loads(parts.take_text())
            if not isinstance(mapping, dict) or not isinstance(mapping.get("topic"), str):
                raise BodyError(f"queue mapping {str(mapping)[:80]!r} names no topic")
            mappings[mapping["topic"]] = mapping
        table.topic_queue_mapping_info_map = mappings
    return RegistrationBody(topic_config_serialize_wrapper=table, filter_server_list=filter_servers)


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise BodyError(f"compressed registration of {len(body)} bytes does not inflate: {error}") from error
    if not inflater.eof:
        problem = "is cut off" if len(data) < INFLATED_BYTES_MAX else f"grows beyond {INFLATED_BYTES_MAX} bytes"
        raise BodyError(f"compressed registration of {len(body)} bytes {problem}")
    return data


def _data_version(text: str) -> DataVersion:
    try:
        return msgspec.convert(loads(text), DataVersion, strict=False)
    except (msgspec.ValidationError, WireError) as error:
        raise BodyError(f"data version {text[:80]!r}: {error}") from error


def _topic(text: str) -> tuple[str, RegisteredTopic]:
    try:
        name, read, write, perm, _, *_ = text.split(" ")
        return name, RegisteredTopic(int(read), int(write), int(perm))
    except ValueError as error:
        raise BodyError(f"topic text {text[:80]!r} is not `name read write perm filter attributes`: {error}") from error


class _Parts:
    """Length-prefixed parts, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take_count(self) -> int:
        if self._at + 4 > len(self._data):
            raise BodyError(f"compressed registration ends at {len(self._data)}, a number is due at {self._at}")
        (number,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        # Every counted part has at least four bytes, so a larger number is a lie told before anything is allocated.
        if not 0 <= number <= len(self._data) - self._at:
            raise BodyError(f"number {number} at {self._at - 4} does not fit {len(self._data)} bytes")
        return number

    def take_text(self) -> str:
        length = self.take_count()
        part = self._data[self._at : self._at + length]
        self._at += length
        try:
            return part.decode()
        except UnicodeDecodeError as error:
            raise BodyError(f"text at {self._at - length} is not UTF-8") from error
