"""HAProxy's PROXY protocol in front of a connection: v1 is a text line, v2 a binary block.

v2: | signature 12 | version and command 1 | family 1 | length 2 | addresses ... |
"""

import ipaddress
from dataclasses import dataclass

from twinlog.base.address_list import plain_host
from twinlog.base.addresses import PORT_MAX

_V1 = b"PROXY "
_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_BYTES_MAX = 107
PREAMBLE_BYTES_MAX = 4096


class ProxyError(Exception):
    """A preamble that begins like PROXY protocol and is not valid."""


@dataclass(frozen=True, slots=True)
class Preamble:
    size: int  # bytes to take off; 0 means there is no preamble
    peer: tuple[str, int] | None = None


_NONE = Preamble(0)


def take_preamble(start: bytes) -> Preamble | None:
    """What precedes the traffic; None means that more bytes are needed."""
    if start.startswith(_V1):
        return _text(start)
    if start.startswith(_V2):
        return _binary(start)
    if _V1.startswith(start) or _V2.startswith(start):
        return None
    return _NONE


def _text(start: bytes) -> Preamble | None:
    end = start.find(b"\r\n", 0, _V1_BYTES_MAX)
    if end < 0:
        if len(start) >= _V1_BYTES_MAX:
            raise ProxyError(f"PROXY line without end in {_V1_BYTES_MAX} bytes")
        return None
    words = start[:end].decode("ascii", "replace").split(" ")
    if len(words) == 6 and words[1] in ("TCP4", "TCP6") and words[4].isdigit() and int(words[4]) <= PORT_MAX:
        return Preamble(end + 2, (_address(words[2]), int(words[4])))
    if len(words) >= 2 and words[1] == "UNKNOWN":
        return Preamble(end + 2)
    raise ProxyError(f"PROXY line {start[:end]!r} does not name a source address and port")


def _binary(start: bytes) -> Preamble | None:
    if len(start) < 16:
        return None
    command, family, length = start[12], start[13], int.from_bytes(start[14:16], "big")
    end = 16 + length
    if end > PREAMBLE_BYTES_MAX or command >> 4 != 2:
        raise ProxyError(f"PROXY block of {length} bytes, version {command >> 4}")
    if len(start) < end:
        return None
    size = {1: 4, 2: 16}.get(family >> 4)
    if command & 0xF == 0 or size is None or length < 2 * size + 4:
        return Preamble(end)
    port = int.from_bytes(start[16 + 2 * size : 18 + 2 * size], "big")
    return Preamble(end, (plain_host(str(ipaddress.ip_address(start[16 : 16 + size]))), port))


def _address(text: str) -> str:
    try:
        return plain_host(str(ipaddress.ip_address(text)))
    except ValueError:
        raise ProxyError(f"PROXY line names the source {text!r}, which is not an address") from None
