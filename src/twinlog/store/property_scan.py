"""The three properties every record is dispatched by, found without decoding the others.

What it trades: the byte patterns of TAGS, KEYS and UNIQ_KEY are looked up directly, which costs a third
of a full decode. Rare shapes (an empty value, an undecodable one) fall back to the plain decoder, and a
property test holds both equal.
"""

from __future__ import annotations

from twinlog.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_properties

_SEPARATOR = b"\x02"
_TAGS = (b"TAGS\x01", b"\x02TAGS\x01", 5, TAGS)
_KEYS = (b"KEYS\x01", b"\x02KEYS\x01", 5, KEYS)
_UNIQ_KEY = (b"UNIQ_KEY\x01", b"\x02UNIQ_KEY\x01", 9, UNIQ_KEY)


def dispatch_properties(data: bytes) -> tuple[str, str, str | None]:
    """(tags, keys, unique key) of a properties text; empty, empty and None when absent."""
    return _find(data, _TAGS) or "", _find(data, _KEYS) or "", _find(data, _UNIQ_KEY)


def _find(data: bytes, what: tuple[bytes, bytes, int, str]) -> str | None:
    first, later, length, name = what
    at = data.rfind(later) + 1  # the last pair of a name wins
    if not at and not data.startswith(first):
        return None
    end = data.find(_SEPARATOR, at + length)
    value = data[at + length :] if end < 0 else data[at + length : end]
    if not value:  # an empty value does not count, an earlier one of the same name may
        return decode_properties(data).get(name)
    return value.decode("utf-8", "replace")
