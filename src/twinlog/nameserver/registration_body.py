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
from typing import Any, cast

import msgspec

from twinlog.wire.bodies import Body, DataVersion, decode_body
from twinlog.wire.codes import VERSION_QUEUE_MAPPINGS, VERSION_REGISTER_WRAPPED
from twinlog.wire.errors import BodyError, WireError
from twinlog.wire.java_json.budget import BESIDE, PEER, check_size
from twinlog.wire.java_json.fastjson import dumps, loads
from twinlog.wire.numbers import INT_MAX, INT_MIN, Int, OpenObject

INFLATED_BYTES_MAX = 64 * 1024 * 1024  # unless a setting names another; 100,000 topics have about 6 MiB
TOPICS_MAX = 500_000  # of one broker
_INT = struct.Struct(">i")


class RegisteredTopic(msgspec.Struct, rename="camel", gc=False):
    """The part of a topic that routes need. Not reading the rest makes 100,000 topics four times as fast."""

    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_sys_flag: Int = 0


class RegisteredTable(Body):
    budget = BESIDE
    topic_config_table: dict[str, RegisteredTopic] = msgspec.field(default_factory=dict[str, RegisteredTopic])
    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: OpenObject | None = None


class RegistrationBody(Body):
    budget = BESIDE
    topic_config_serialize_wrapper: RegisteredTable = msgspec.field(default_factory=RegisteredTable)
    filter_server_list: list[str] | None = None


class InflatesTooFar(BodyError):
    """A compressed registration is larger than the limit."""


def decode_registration(
    body: bytes | None, *, version: int, compressed: bool, inflated_max: int = INFLATED_BYTES_MAX
) -> RegistrationBody:
    """The topics that a broker registers; no body means none."""
    if not body:
        return RegistrationBody()
    if version < VERSION_REGISTER_WRAPPED:
        found = RegistrationBody(topic_config_serialize_wrapper=decode_body(RegisteredTable, body))
    elif compressed:
        return _decode_compressed(body, version, inflated_max)
    else:
        found = decode_body(RegistrationBody, body)
    _check_count(len(found.topic_config_serialize_wrapper.topic_config_table))
    return found


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise BodyError(f"a registration of {topics} topics; one broker may register {TOPICS_MAX}")


def body_crc32(body: bytes | None) -> int:
    return zlib.crc32(body or b"") & 0x7FFFFFFF


def _decode_compressed(body: bytes, version: int, inflated_max: int) -> RegistrationBody:
    data = _inflate(body, inflated_max)
    check_size(data, PEER.typed_values_max)  # the JSON in it has many parts, and one budget
    parts = _Parts(data)
    table = RegisteredTable(data_version=_data_version(parts.take_text()))
    count = parts.take_count()
    _check_count(count)
    for _ in range(count):
        name, topic = _topic(parts.take_text())
        table.topic_config_table[name] = topic
    filter_servers = _filter_servers(parts.take_text())
    if version >= VERSION_QUEUE_MAPPINGS:
        count = parts.take_count()
        _check_count(count)
        table.topic_queue_mapping_info_map = dict(_mapping(parts.take_text()) for _ in range(count))
    return RegistrationBody(topic_config_serialize_wrapper=table, filter_server_list=filter_servers)


def _inflate(body: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, bytes_max)
    except zlib.error as error:
        raise BodyError(f"compressed registration of {len(body)} bytes does not inflate: {error}") from error
    if not inflater.eof:
        if len(data) >= bytes_max:
            raise InflatesTooFar(f"compressed registration of {len(body)} bytes grows beyond {bytes_max} bytes")
        raise BodyError(f"compressed registration of {len(body)} bytes is cut off")
    return data


def _data_version(text: str) -> DataVersion:
    try:
        return msgspec.convert(loads(text), DataVersion, strict=False)
    except (msgspec.ValidationError, WireError) as error:
        raise BodyError(f"data version {text[:80]!r}: {error}") from error


def _topic(text: str) -> tuple[str, RegisteredTopic]:
    try:
        name, read, write, perm, _, *_ = text.split(" ", 5)
        numbers = int(read), int(write), int(perm)
    except ValueError as error:
        layout = "name read write perm filter attributes"
        raise BodyError(f"topic text {text[:80]!r} is not `{layout}`: {str(error)[:80]}") from error
    if not INT_MIN <= min(numbers) <= max(numbers) <= INT_MAX:
        raise BodyError(f"topic text {text[:80]!r} has a number of more than 32 bits")
    return name, RegisteredTopic(*numbers)


def _filter_servers(text: str) -> list[str]:
    found = loads(text)
    try:
        return msgspec.convert(found, list[str])
    except msgspec.ValidationError as error:
        raise BodyError(f"filter servers {dumps(found)[:80]!r} are not a list of addresses") from error


def _mapping(text: str) -> tuple[str, dict[str, Any]]:
    """The topic that a queue mapping is about, and the mapping."""
    found = loads(text)
    mapping = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    topic = mapping.get("topic")
    if not isinstance(topic, str):
        raise BodyError(f"queue mapping {text[:80]!r} names no topic")
    return topic, mapping


class _Parts:
    """Length-prefixed parts, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take_count(self) -> int:
        if self._at + 4 > len(self._data):
            raise BodyError(f"compressed registration ends at {len(self._data)}, a number is due at {self._at}")
        (number,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        # What is counted has at least a byte each, so a larger number is refused before anything is allocated.
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
