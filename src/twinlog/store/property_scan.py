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


def _decode(data: bytes) -> tuple[str, str, str | None]:
    pairs = decode_properties(data)
    return pairs.get(TAGS, ""), pairs.get(KEYS, ""), pairs.get(UNIQ_KEY)
