"""One command of the remoting protocol, request or response, and its two header encodings.

JSON header: an object with code, language, version, opaque, flag, remark, extFields.
Binary header, big-endian:

    | code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4 | remark | fields length 4 | fields |
    one field: | key length 2 | key | value length 4 | value |
"""

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from twinlog.wire.codes import LANGUAGE_CODES, LANGUAGE_NAMES, VERSION, ResponseCode
from twinlog.wire.errors import HeaderError, WireError
from twinlog.wire.frame import BINARY, JSON, Frame, encode_frame
from twinlog.wire.java_json.fastjson import dumps, is_array, is_object, loads
from twinlog.wire.numbers import INT_MAX, INT_MIN, Int

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
BINARY_HEAD = struct.Struct(">hBhiii")
_KEY_LENGTH = struct.Struct(">h")
_INT = struct.Struct(">i")
FIELDS_MAX = 1024  # in a header; Java has no limit, and its largest header has some twenty


@dataclass(slots=True)
class Command:
    """A request or a response; `fields` is what RocketMQ calls extFields, all values text."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str | None = "JAVA"
    version: int = VERSION
    remark: str | None = None
    fields: dict[str, str] | None = None
    body: bytes | None = None

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)


C = TypeVar("C", bound=Command)


def response_to(
    request_opaque: int,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    fields: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Command:
    """The answer to the request that carried `request_opaque`."""
    return Command(code, request_opaque, RESPONSE_FLAG, remark=remark, fields=fields, body=body)


def encode_command(command: Command, header_type: int = JSON) -> bytes:
    """The whole frame of `command`."""
    return encode_frame(encode_header(command, header_type), command.body, header_type)


def decode_command(frame: Frame) -> Command:
    """The command in `frame`; an empty body reads as None."""
    command = decode_header(frame.header, frame.header_type)
    command.body = frame.body or None
    return command


def encode_header(command: Command, header_type: int = JSON) -> bytes:
    return _encode_json(command) if header_type == JSON else _encode_binary(command)


def decode_header(header: bytes, header_type: int, make: type[C] = Command) -> C:
    """The command without its body, as a `make` (Command, or a class with the same members)."""
    return _decode_json(header, make) if header_type == JSON else _decode_binary(header, make)


class _JsonHeader(msgspec.Struct):
    """The shape that Java, Go and Twinlog write; anything else takes the tolerant decoder."""

    code: Int
    opaque: Int
    flag: Int = 0
    language: str | None = None
    version: Int = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_strict = msgspec.json.Decoder(_JsonHeader).decode
_encode_text = msgspec.json.encode


def _encode_json(command: Command) -> bytes:
    # Members in alphabetical order, as fastjson writes them; control characters are escaped as JSON requires.
    header: dict[str, object] = {"code": command.code}
    if command.fields is not None:
        header["extFields"] = command.fields
    header["flag"] = command.flag
    header["language"] = command.language or "OTHER"
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return _encode_text(header)


def _decode_json(header: bytes, make: type[C]) -> C:
    try:
        strict = _decode_strict(header)
    except (ValueError, RecursionError):  # msgspec's errors are values too
        return _decode_tolerant(header, make)
    if strict.extFields is not None and len(strict.extFields) > FIELDS_MAX:
        raise _too_many_fields()
    language = "JAVA" if strict.language is None else strict.language
    return make(
        strict.code,
        strict.opaque,
        strict.flag,
        language if language in LANGUAGE_CODES else None,
        strict.version,
        strict.remark,
        strict.extFields,
    )


def _decode_tolerant(header: bytes, make: type[C]) -> C:
    """What fastjson accepts beyond JSON: numbers as text, bare names, values of any scalar type."""
    try:
        value = loads(header)
    except WireError as error:
        raise HeaderError(f"header is not JSON: {error}") from error
    if not is_object(value):
        raise HeaderError(f"header is a JSON {type(value).__name__}, not an object")
    fields = value.get("extFields")
    if fields is not None and not is_object(fields):
        raise HeaderError(f"extFields is a JSON {type(fields).__name__}, not an object")
    if fields is not None and len(fields) > FIELDS_MAX:
        raise _too_many_fields()
    language = value.get("language", "JAVA")
    if is_object(language) or is_array(language):
        raise HeaderError(f"language is a JSON {type(language).__name__}, not a name")
    remark = value.get("remark")
    return make(
        _integer(value, "code"),
        _integer(value, "opaque"),
        _integer(value, "flag"),
        language if language in LANGUAGE_CODES else None,
        _integer(value, "version"),
        None if remark is None else _text(remark),
        None if fields is None else {_text(k): _text(v) for k, v in fields.items() if v is not None},
    )


def _integer(members: dict[Any, Any], name: str) -> int:
    found = members.get(name)
    if found is None:
        return 0
    try:
        number = int(found)
    except (TypeError, ValueError, OverflowError):
        raise HeaderError(f"{name}={str(found)[:40]!r} is not a number") from None
    if not INT_MIN <= number <= INT_MAX:
        raise HeaderError(f"{name}={str(found)[:40]} is not a number of 32 bits")
    return number


def _too_many_fields() -> HeaderError:
    return HeaderError(f"header with more than {FIELDS_MAX} fields: not a RocketMQ peer?")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return dumps(value).decode()


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for key, value in (command.fields or {}).items():
        key_bytes, value_bytes = key.encode(), value.encode()
        parts += (_KEY_LENGTH.pack(len(key_bytes)), key_bytes, _INT.pack(len(value_bytes)), value_bytes)
    fields = b"".join(parts)
    # The code has 16 bits here: pop codes above 32767 do not survive, in Java neither.
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000
    head = BINARY_HEAD.pack(
        code,
        LANGUAGE_CODES.get(command.language or "OTHER", 7),
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((head, remark, _INT.pack(len(fields)), fields))


def _decode_binary(header: bytes, make: type[C]) -> C:
    try:
        code, language, version, opaque, flag, remark_length = BINARY_HEAD.unpack_from(header)
        at = BINARY_HEAD.size + remark_length
        if remark_length < 0 or at + 4 > len(header):
            raise HeaderError(f"remark of {remark_length} bytes in a header of {len(header)}")
        remark = header[BINARY_HEAD.size : at].decode() or None
        (fields_length,) = _INT.unpack_from(header, at)
        if fields_length < 0 or at + 4 + fields_length > len(header):
            raise HeaderError(f"fields of {fields_length} bytes in a header of {len(header)}")
        fields = _decode_binary_fields(header, at + 4, at + 4 + fields_length) if fields_length else None
    except (struct.error, UnicodeDecodeError) as error:
        raise HeaderError(f"binary header of {len(header)} bytes does not parse: {error}") from error
    return make(code, opaque, flag, LANGUAGE_NAMES.get(language), version, remark, fields)


def _decode_binary_fields(header: bytes, at: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    count = 0
    while at < end:
        (key_length,) = _KEY_LENGTH.unpack_from(header, at)
        value_at = at + 2 + key_length
        if key_length < 0 or value_at + 4 > end:
            raise HeaderError(f"field name of {key_length} bytes runs over the header's end")
        (value_length,) = _INT.unpack_from(header, value_at)
        next_at = value_at + 4 + value_length
        if value_length < 0 or next_at > end:
            raise HeaderError(f"field value of {value_length} bytes runs over the header's end")
        count += 1
        if count > FIELDS_MAX:
            raise _too_many_fields()
        if key_length and value_length:  # Java reads a zero length as null
            fields[header[at + 2 : value_at].decode()] = header[value_at + 4 : next_at].decode()
        at = next_at
    return fields


__all__ = [
    "BINARY",
    "JSON",
    "Command",
    "decode_command",
    "decode_header",
    "encode_command",
    "encode_header",
    "response_to",
]
