"""The JSON of a route, which depends on who asks.

Clients since V4_9_4, and those that accept nothing else, get standard JSON: quoted keys, ASCII only. Older ones get
integer keys as Java writes them. There is no white space: some clients parse the text with their own code.
"""

from __future__ import annotations

import re

from twinlog.wire.bodies import TopicRouteData, encode_body
from twinlog.wire.codes import VERSION_QUOTED_ROUTE_KEYS

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def encode_route(route: TopicRouteData, *, requester_version: int, standard_only: bool) -> bytes:
    if requester_version < VERSION_QUOTED_ROUTE_KEYS and not standard_only:
        return encode_body(route)
    text = encode_body(route, int_keys="quoted").decode()
    return _NOT_ASCII.sub(lambda match: _escape(match[0]), text).encode("ascii")


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
