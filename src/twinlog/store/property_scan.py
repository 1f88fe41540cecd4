"""TAGS, KEYS and UNIQ_KEY of a properties text, found without decoding the others. Every record is dispatched by them.

What it trades: the byte patterns of the three names are searched directly, and the search is written out three times,
which costs a quarter of a full decode. Rare shapes (an empty value) take the plain decoder. A property test holds
both equal.
"""

from __future__ import annotations

from twinlog.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_properties


def dispatch_properties(data: bytes) -> tuple[str, str, str | None]:
    """(tags, keys, unique key) of a properties text; empty, empty and None when absent.

    The last pair of a name wins, hence `rfind`. The first pair of the text has no separator in front of it. When only
    that one matches, `at` is -1, which is where its separator would be.
    """
    tags, keys, uniq_key = "", "", None
    at = data.rfind(b"\x02UNIQ_KEY\x01")
    if at >= 0 or data.startswith(b"UNIQ_KEY\x01"):
        end = data.find(b"\x02", at + 10)
        value = data[at + 10 : end] if end >= 0 else data[at + 10 :]
        if not value:
            return _decode(data)
        uniq_key = value.decode("utf-8", "replace")
    at = data.rfind(b"\x02TAGS\x01")
    if at >= 0 or data.startswith(b"TAGS\x01"):
        end = data.find(b"\x02", at + 6)
        value = data[at + 6 : end] if end >= 0 else data[at + 6 :]
        if not value:
            return _decode(data)
        tags = value.decode("utf-8", "replace")
    at = data.rfind(b"\x02KEYS\x01")
    if at >= 0 or data.startswith(b"KEYS\x01"):
        end = data.find(b"\x02", at + 6)
        value = data[at + 6 : end] if end >= 0 else data[at + 6 :]
        if not value:
            return _decode(data)
        keys = value.decode("utf-8", "replace")
    return tags, keys, uniq_key


def dispatch_tags(data: bytes) -> str:
    """The first result of `dispatch_properties` alone."""
    at = data.rfind(b"\x02TAGS\x01")
    if at < 0 and not data.startswith(b"TAGS\x01"):
        return ""
    end = data.find(b"\x02", at + 6)
    value = data[at + 6 : end] if end >= 0 else data[at + 6 :]
    return value.decode("utf-8", "replace") if value else _decode(data)[0]


def value_places(data: bytes) -> dict[bytes, slice] | None:
    """Where the value of each property is; None if a name comes twice, or the plain decoder would drop a pair."""
    places: dict[bytes, slice] = {}
    at = 0
    while at < len(data):
        end = data.find(b"\x02", at)
        end = len(data) if end < 0 else end
        name_end = data.find(b"\x01", at, end)
        name = data[at:name_end]
        if not at < name_end < end - 1 or name in places:
            return None
        places[name] = slice(name_end + 1, end)
        at = end + 1
    return places


def _decode(data: bytes) -> tuple[str, str, str | None]:
    pairs = decode_properties(data)
    return pairs.get(TAGS, ""), pairs.get(KEYS, ""), pairs.get(UNIQ_KEY)
