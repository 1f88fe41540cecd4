"""What the headers of one producer's sends to one queue have in common, byte for byte.

A Java producer writes the same header again and again; only three places differ, two of them of fixed width:

    {"code":310,"extFields":{"a":"PG",...,"g":" 1700000000000 ","h":"0","i":"UNIQ_KEY\\u0001 7F00...01 \\u0002TAGS...
    |----------------- prefix -----------------|    born     |----------- before --------|   key    |- after ---
    ...","j":"0",...},"flag":0,"language":"JAVA","opaque": 17 ,"serializeTypeCurrentRPC":"JSON","version":479}
    ---------------------- after ------------------------|    |------------------ trailer -------------------|

When all other bytes of a header equal those of one that was decoded and accepted, its meaning is the same, and it is
not decoded again. Headers whose properties change with every message (KEYS) fit no template and are decoded.
"""

from __future__ import annotations

from typing import NamedTuple

BORN = b'"g":"'
BORN_DIGITS = 13  # milliseconds until the year 2286
_KEY = rb"UNIQ_KEY\u0001"
_OPAQUE = b'"opaque":'


class Template(NamedTuple):
    prefix: bytes
    before: bytes
    key_length: int
    after: bytes
    trailer: bytes


def learn(header: bytes, uniq_key: str) -> Template | None:
    """The template of a header that was decoded and carries this key; None when its members come in another order."""
    born_at = header.find(BORN) + len(BORN)
    key_at = header.find(_KEY) + len(_KEY)
    opaque_at = header.find(_OPAQUE) + len(_OPAQUE)
    opaque_end = header.find(b",", opaque_at)
    key_end = key_at + len(uniq_key)
    in_order = len(BORN) <= born_at < key_at < opaque_at < opaque_end
    # Exactly once: with a second key, the one that was decoded might not be the one that is found here.
    if not in_order or header.count(b"UNIQ_KEY") != 1 or header[key_at:key_end] != uniq_key.encode():
        return None
    born, opaque = header[born_at : born_at + BORN_DIGITS], header[opaque_at:opaque_end]
    if not born.isdigit() or header[born_at + BORN_DIGITS : born_at + BORN_DIGITS + 1] != b'"' or not opaque.isdigit():
        return None
    return Template(
        header[:born_at],
        header[born_at + BORN_DIGITS : key_at],
        len(uniq_key),
        header[key_end:opaque_at],
        header[opaque_end:],
    )
