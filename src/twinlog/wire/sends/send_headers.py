"""The headers of sends (codes 10, 310, 320) in every spelling that clients use, decoded to one flat form.

A fast path beside `command` and `headers`, which define what a header means. JSON is decoded in C, whatever the order
of its members and the blanks between them, with long names (code 10) or short ones. None is returned for a header that
only the tolerant decoder can read, or that lacks a member. A property test holds both equal.
"""

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from twinlog.wire.command import FIELDS_MAX
from twinlog.wire.fields import camel
from twinlog.wire.numbers import LONG_MAX, LONG_MIN, Int

Value = str | int  # as the header has it: most clients write numbers as text
Constants = tuple[str, Value, Value, Value, Value, Value, str | bool]
"""topic, queues of a new topic, queue id, system flag, flag, reconsumed, batch: what a producer's headers share"""

FlatSend = tuple[int, int, Constants, int, str]
"""opaque, command flag, constants, born timestamp, properties"""

_SHORT_STARTS = (b'{"code":310,', b'{"code":320,')
_LONG_START = b'{"code":10,'
_CODE = re.compile(rb'"code"\s*:\s*(?:(310|320)|10)\b')
_OTHER_CODE = re.compile(rb'{"code":\d')
_LONG_HEADER_BYTES = 4 * FIELDS_MAX  # a shorter header cannot have too many fields


class _LongFields(msgspec.Struct, gc=False, rename=camel):
    """What a send needs of its header; members of other names are skipped."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Value
    queue_id: Value
    sys_flag: Value
    born_timestamp: Value
    flag: Value
    properties: str = ""
    reconsume_times: Value = "0"
    batch: str | bool = "false"


LONG_NAMES = {name: camel(name) for name in _LongFields.__struct_fields__}
SHORT_NAMES = dict(zip(LONG_NAMES, "abcdefghijm", strict=True))


class _ShortFields(msgspec.Struct, gc=False, rename=SHORT_NAMES):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Value
    queue_id: Value
    sys_flag: Value
    born_timestamp: Value
    flag: Value
    properties: str = ""
    reconsume_times: Value = "0"
    batch: str | bool = "false"


class _Header(msgspec.Struct, gc=False):
    opaque: Int
    flag: Int = 0
    language: str | None = None
    version: Int = 0
    remark: str | None = None


class _ShortHeader(_Header, gc=False, kw_only=True):
    code: Literal[310, 320]
    extFields: _ShortFields


class _LongHeader(_Header, gc=False, kw_only=True):
    code: Literal[10]
    extFields: _LongFields


JsonSend = _ShortHeader | _LongHeader
_decode_short = msgspec.json.Decoder(_ShortHeader).decode
_decode_long = msgspec.json.Decoder(_LongHeader).decode


def decode_json_send(header: bytes) -> FlatSend | None:
    """The send that a JSON header describes; None when it is another request, or needs the plain decoder."""
    command = _command(header)
    if command is None:
        return None
    fields = command.extFields
    try:
        born = int(fields.born_timestamp)
    except ValueError:
        return None
    if not LONG_MIN <= born <= LONG_MAX:
        return None
    constants = (
        fields.topic,
        fields.default_topic_queue_nums,
        fields.queue_id,
        fields.sys_flag,
        fields.flag,
        fields.reconsume_times,
        fields.batch,
    )
    return command.opaque, command.flag, constants, born, fields.properties


def decode_json_sends(headers: list[bytes]) -> list[JsonSend]:
    """The sends that these headers describe, up to the first that is another request, or needs the plain decoder.

    Headers of one kind, as those of one producer are, are decoded by one call. Born timestamps are not read yet.
    """
    decode = _decoder(headers[0]) if headers else None
    if decode is None:
        return []
    try:
        together = list(map(decode, headers))
        if all(map(bytes.isascii, headers)) and max(map(len, headers)) <= _LONG_HEADER_BYTES:
            return together
    except (ValueError, RecursionError):
        pass
    commands: list[JsonSend] = []
    for header in headers:
        command = _command(header)
        if command is None:
            break
        commands.append(command)
    return commands


def _command(header: bytes) -> JsonSend | None:
    decode = _decoder(header)
    if decode is None or (len(header) > _LONG_HEADER_BYTES and header.count(b":") > FIELDS_MAX):
        return None
    try:
        command = decode(header)
        if not header.isascii():
            header.decode()  # the text of members that were skipped is not checked yet
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors too
        return None
    return command


def _decoder(header: bytes) -> Callable[[bytes], JsonSend] | None:
    """What decodes headers of this kind; None for a request that is not a send."""
    if header.startswith(_SHORT_STARTS):
        return _decode_short
    if header.startswith(_LONG_START):
        return _decode_long
    # What is found may stand in a member of another name. Then the decoder, or a missing member, says so.
    found = None if _OTHER_CODE.match(header) else _CODE.search(header)
    if found is None:
        return None
    return _decode_short if found[1] is not None else _decode_long
