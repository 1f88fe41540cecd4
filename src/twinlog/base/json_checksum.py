"""A checksum as the last member of a JSON file, which Java's readers overlook.

    {"offsetTable":{...},"twinlogCrc32":"0a1b2c3d 1763308800123456789"}
    |                   |
    the CRC-32 is that of these bytes, and of the number

The number is the time of the save in nanoseconds, which is the file's modification time as well. A disk that damages a
file leaves that time as it is, and whoever changes a file by hand does not. So a file that differs from its checksum is
damaged if its time is the one inside, and otherwise it is what somebody wants. A file that Java has written has no
checksum and is not checked.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator

MEMBER = "twinlogCrc32"
_FOUND = re.compile(rb',?"twinlogCrc32":"([0-9a-f]{8})(?: ([0-9]{1,19}))?"}\s*\Z')
_SAVED = re.compile(rb'"twinlogCrc32"\s*:\s*"[0-9a-f]{8} ([0-9]{1,19})"')  # also after a tool has laid it out anew
_TAIL_BYTES = 96
_HELD_BYTES = 8  # of the end, which may be blanks behind the brace
_TRACES = (b"twinlog", b"Crc32")  # one of them survives when a bit of the member has flipped
_TIME_STEPS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)  # of file systems and archives, nanoseconds


def with_checksum(chunks: Iterable[bytes], saved_ns: int) -> Iterator[bytes]:
    """The bytes of one JSON object, with the checksum as its last member."""
    crc, held, is_begun = 0, b"", False
    for chunk in chunks:
        if len(chunk) > _HELD_BYTES:
            ready, held = b"".join((held, memoryview(chunk)[:-_HELD_BYTES])), chunk[-_HELD_BYTES:]
        else:
            held += chunk
            ready, held = held[:-_HELD_BYTES], held[-_HELD_BYTES:]
        if ready:
            crc, is_begun = zlib.crc32(ready, crc), True
            yield ready
    body = held.rstrip()
    if not body.endswith(b"}"):  # not an object: as it is
        yield held
        return
    body, number = body[:-1], b"%d" % saved_ns
    comma = b"," if is_begun or body.strip() != b"{" else b""
    crc = zlib.crc32(number, zlib.crc32(body, crc))
    yield body + b'%b"%b":"%08x %b"}' % (comma, MEMBER.encode(), crc, number)


def check_json(data: bytes) -> bool:
    """Whether the file has a checksum; ValueError when it is not the right one."""
    found = _FOUND.search(data, max(0, len(data) - _TAIL_BYTES))
    if found is None:
        tail = data[-_TAIL_BYTES:]
        if any(trace in tail for trace in _TRACES):
            raise ValueError(f"its member {MEMBER} is damaged; remove the member to use the file as it is")
        return False
    crc = zlib.crc32(found[2] or b"", zlib.crc32(memoryview(data)[: found.start()]))
    if crc != int(found[1], 16):
        raise ValueError(
            f"its CRC-32 is {crc:08x}, its member {MEMBER} is {found[1].decode()}: it is damaged; remove the member "
            f"to use the file as it is"
        )
    return True


def is_changed(data: bytes, modified_ns: int) -> bool:
    """Whether a file was changed on purpose since it was saved; ValueError when it is damaged instead.

    `modified_ns` is its modification time.
    """
    try:
        check_json(data)
    except ValueError:
        saved = _SAVED.findall(data)
        is_old = saved and all(modified_ns != int(saved[-1]) // step * step for step in _TIME_STEPS)
        if not is_old or _has_damaged_time(data):
            raise
        return True
    return False


def _has_damaged_time(data: bytes) -> bool:
    """Whether the checksum would be right with one other digit in the time inside."""
    found = _FOUND.search(data, max(0, len(data) - _TAIL_BYTES))
    if found is None or not found[2]:
        return False
    body, crc, number = zlib.crc32(memoryview(data)[: found.start()]), int(found[1], 16), found[2]
    others = (number[:at] + b"%d" % digit + number[at + 1 :] for at in range(len(number)) for digit in range(10))
    return any(zlib.crc32(other, body) == crc for other in others)
