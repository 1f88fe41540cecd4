"""A checksum as the last member of a JSON file, which Java's readers overlook.

    {"offsetTable":{...},"twinlogCrc32":"0a1b2c3d"}
    |                   |
    the CRC-32 is that of these bytes

A file that Java has written has none and is not checked. Whoever changes a file by hand removes the member.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator

MEMBER = "twinlogCrc32"
_FOUND = re.compile(rb',?"twinlogCrc32":"([0-9a-f]{8})"}\s*\Z')
_TAIL_BYTES = 48
_HELD_BYTES = 8  # of the end, which may be blanks behind the brace
_TRACES = (b"twinlog", b"Crc32")  # one of them survives when a bit of the member has flipped


def with_checksum(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of one JSON object, with the checksum as its last member."""
    crc, held, is_begun = 0, b"", False
    for chunk in chunks:
        held += chunk
        if len(held) > _HELD_BYTES:
            ready, held = held[:-_HELD_BYTES], held[-_HELD_BYTES:]
            crc, is_begun = zlib.crc32(ready, crc), True
            yield ready
    body = held.rstrip()
    if not body.endswith(b"}"):  # not an object: as it is
        yield held
        return
    body = body[:-1]
    comma = b"," if is_begun or body.strip() != b"{" else b""
    yield body + b'%b"%b":"%08x"}' % (comma, MEMBER.encode(), zlib.crc32(body, crc))


def check_json(data: bytes) -> bool:
    """Whether the file has a checksum; ValueError when it is not the right one."""
    found = _FOUND.search(data, max(0, len(data) - _TAIL_BYTES))
    if found is None:
        tail = data[-_TAIL_BYTES:]
        if any(trace in tail for trace in _TRACES):
            raise ValueError(f"its member {MEMBER} is damaged")
        return False
    crc = zlib.crc32(memoryview(data)[: found.start()])
    if crc != int(found[1], 16):
        raise ValueError(
            f"its CRC-32 is {crc:08x}, its member {MEMBER} is {found[1].decode()}: it is damaged, or was changed by "
            f"hand; remove the member to use the file as it is"
        )
    return True
