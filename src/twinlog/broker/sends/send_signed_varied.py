"""Templates of signed headers whose properties differ from message to message: KEYS, a traceparent, a user's own.

As `send_template`, with one long place for the text of all properties, and one for the signature:

    ..."g":" 1700000000000 ","h":"0","i":" KEYS\\u0001... ","j":"0",..,"Signature":" pFx...0= ","AccessKey":"name"},..
    prefix |     born     |--- before ---|  properties  |--------- after ---------|signature|--- after signature ---

Everything else equals, byte for byte, a header that was decoded and admitted. The text ends at the first quotation mark
and is decoded as a JSON string of its own; one that is cut there by an escape is not valid, and its header is decoded.
The values around it are the signed content, so no field is looked at. A third less time than decoding the header.

A property test holds the result equal to the plain path.
"""

from __future__ import annotations

from binascii import b2a_base64
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from twinlog.broker.sends.send_answers import json_texts
from twinlog.broker.sends.send_template import BORN, BORN_DIGITS
from twinlog.security.signatures import ACCESS_KEY, SIGNATURE, SIGNATURE_LENGTH
from twinlog.wire.frame import PREFIX
from twinlog.wire.java_text import tags_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash

    from twinlog.broker.sends.send_answers import Unanswered
    from twinlog.broker.sends.send_target import Target
    from twinlog.security.signatures import AccountKey
    from twinlog.store.log.append_run import Row

    Asked = Callable[["VariedHeader", str], bool]

_CONSTANT_BYTES_MAX = 1024  # longer templates are not cached
_HEADER_BYTES_MAX = 64 * 1024  # longer ones are left to the plain decoder, with its limits
_HEADERS_MAX = 16384  # cached; when there are more, all are dropped
_PROPERTIES = b'"i":"'
_SIGNATURE_START = b'"Signature":"'
_OPAQUE = b'"opaque":'
_STARTS = (b'{"code":310,', b'{"code":320,')
_ONCE = (b'"code"', b'"g"', b'"i"', b'"opaque"', b'"Signature"', b'"AccessKey"', b'"extFields"')
_text = msgspec.json.Decoder(str).decode


class VariedParts(NamedTuple):
    """The constant parts of a header, and of the content that is signed."""

    before: bytes
    after: bytes
    after_signature: bytes
    trailer: bytes
    start: _Hash  # after the content up to the born timestamp
    middle: bytes
    rest: bytes
    outer: _Hash


class VariedHeader:
    """A template, the account that signs, and what the rows of its messages share."""

    __slots__ = ("constants", "name", "sources", "topic")

    def __init__(self, parts: VariedParts, name: str, target: Target, own: bytes, *, is_oneway: bool) -> None:
        self.name, self.topic = name, target.topic
        self.sources: set[str] = set()  # addresses from which the account may send this
        before, after, after_signature, trailer, start, middle, rest, outer = parts
        self.constants = (
            before, after, after_signature, trailer, start, middle, rest, outer, len(before), len(after),
            len(after_signature), len(trailer), target, target.topic, target.queue_id, target.flag, target.sys_flag,
            target.reconsume_times, own, is_oneway,
        )  # fmt: skip


class VariedHeaders(dict[bytes, "VariedHeader | None"]):
    """Templates by prefix; None for a prefix of headers that have none."""

    def take(
        self, data: bytes, at: int, end: int, rows: list[Row], sends: list[Unanswered], source: str, is_admitted: Asked
    ) -> int:
        """Add the messages at the front of a chunk that fit templates; returns where the first begins that does not.

        A loop for each message, longer than other functions: calls would cost as much as what they do.
        """
        find, get, unpack, startswith, number = data.find, self.get, PREFIX.unpack_from, data.startswith, len(sends)
        while end - at > 20:
            header_at = at + 8
            born_at = find(BORN, header_at, header_at + _CONSTANT_BYTES_MAX) + len(BORN)
            known = get(data[header_at:born_at])
            if known is None or (source not in known.sources and not is_admitted(known, source)):
                break
            (
                before, after, after_signature, trailer, start, middle, rest, outer, before_length, after_length,
                after_signature_length, trailer_length, target, topic, queue_id, flag, sys_flag, reconsume_times, own,
                is_oneway,
            ) = known.constants  # fmt: skip
            length, header_length = unpack(data, at)
            body_at, frame_end, born_end = header_at + header_length, at + 4 + length, born_at + BORN_DIGITS
            text_at = born_end + before_length
            text_end = find(b'"', text_at, body_at)
            signature_at = text_end + after_length
            signature_end = signature_at + SIGNATURE_LENGTH
            opaque_at, trailer_at = signature_end + after_signature_length, body_at - trailer_length
            born, opaque = data[born_at:born_end], data[opaque_at:trailer_at]
            if not (
                body_at < frame_end <= end
                and text_end > 0
                and header_length <= _HEADER_BYTES_MAX
                and startswith(before, born_end)
                and startswith(after, text_end)
                and startswith(after_signature, signature_end)
                and startswith(trailer, trailer_at)
                and born.isdigit()
                and opaque_at < trailer_at < opaque_at + 10  # at most nine digits
                and opaque.isdigit()
                and (opaque[0] != 0x30 or len(opaque) == 1)
            ):
                break
            try:
                text = _text(data[text_at - 1 : text_end + 1])
            except ValueError:  # msgspec's errors are ValueErrors
                break
            match, uniq_at, tags_at, keys_at, special = target.shape
            found = match(text)
            if found is None or special is not None:
                break
            body, properties, values = data[body_at:frame_end], text.encode(), found.groups()
            inner, signed = start.copy(), outer.copy()
            inner.update(born + middle + properties + rest)
            inner.update(body)
            signed.update(inner.digest())
            if not compare_digest(b2a_base64(signed.digest(), newline=False), data[signature_at:signature_end]):
                break
            uniq_key = values[uniq_at]
            row = (
                topic, queue_id, body, properties + own, int(born), flag, sys_flag, reconsume_times,
                tags_code(values[tags_at]), values[keys_at], uniq_key,
            )  # fmt: skip
            rows.append(row)
            sends.append((target, None if is_oneway else opaque.decode(), uniq_key, frame_end))
            at = frame_end
        if len(sends) > number:
            json_texts(sends, number)
        return at

    def learn(
        self, prefix: bytes, header: bytes, fields: dict[str, str], row: Row, key: AccountKey, target: Target,
        *, is_oneway: bool,
    ) -> None:  # fmt: skip
        """Cache the template of a header that was decoded to these fields and admitted."""
        parts, text = varied_parts(header, fields, key), fields.get("i", "").encode()
        known = None
        if parts is not None and row[3].startswith(text):
            known = VariedHeader(parts, fields[ACCESS_KEY], target, row[3][len(text) :], is_oneway=is_oneway)
        if len(self) >= _HEADERS_MAX:
            self.clear()
        self[prefix] = known


def varied_parts(header: bytes, fields: dict[str, str], key: AccountKey) -> VariedParts | None:
    """The template of a header with these fields; None when its members come in another order.

    Each member that differs must be there once, and no name may be written with escapes. With a second one, the value
    that was decoded might not be the one that is found here.
    """
    born_at = header.find(BORN) + len(BORN)
    born_end = born_at + BORN_DIGITS
    text_at = header.find(_PROPERTIES, born_end) + len(_PROPERTIES)
    text_end = header.find(b'"', text_at)
    signature_at = header.find(_SIGNATURE_START, text_end) + len(_SIGNATURE_START)
    signature_end = signature_at + SIGNATURE_LENGTH
    opaque_at = header.find(_OPAQUE, signature_end) + len(_OPAQUE)
    opaque_end = header.find(b",", opaque_at)
    in_order = header.startswith(_STARTS) and len(BORN) <= born_at < text_at <= text_end < signature_at < opaque_at
    is_long = len(header) - (text_end - text_at) > _CONSTANT_BYTES_MAX
    if not in_order or is_long or opaque_end < 0 or any(header.count(name) != 1 for name in _ONCE):
        return None
    if b"\\" in header[:text_at] + header[text_end:] or not header[born_at:born_end].isdigit():
        return None
    if header[born_end : born_end + 1] != b'"' or header[signature_end : signature_end + 1] != b'"':
        return None
    if not header[opaque_at:opaque_end].isdigit():
        return None
    try:
        if _text(header[text_at - 1 : text_end + 1]) != fields.get("i"):
            return None
    except ValueError:  # msgspec's errors are ValueErrors
        return None
    names = sorted(name for name in fields if name != SIGNATURE)
    born, properties = names.index("g"), names.index("i")
    start, middle, rest = (
        "".join(fields[name] for name in some).encode()
        for some in (names[:born], names[born + 1 : properties], names[properties + 1 :])
    )
    inner = key.inner.copy()
    inner.update(start)
    return VariedParts(
        header[born_end:text_at], header[text_end:signature_at], header[signature_end:opaque_at], header[opaque_end:],
        inner, middle, rest, key.outer,
    )  # fmt: skip
