"""Remoting frames: where one command ends and the next begins.

Big-endian; `length` counts every byte after itself:

    0        4        5                 8        8+H
    | length | type   | header length H | header | body ...
"""

import struct
from dataclasses import dataclass

from twinlog.wire.errors import FrameError

PREFIX = struct.Struct(">iI")
FRAME_BYTES_MAX = 16 * 1024 * 1024  # the Java peer drops the connection above this, its own length field included
# Java has no limit of its own for headers. The largest real one carries 32 KiB of properties, escaped sixfold at worst.
HEADER_BYTES_MAX = 2 * 1024 * 1024
JSON = 0
BINARY = 1


@dataclass(frozen=True, slots=True)
class Frame:
    header_type: int  # JSON or BINARY
    header: bytes
    body: bytes


def take_frame(buffer: bytearray) -> Frame | None:
    """Remove one whole frame from the front of `buffer`; None means "feed me more"."""
    span = frame_span(buffer, 0, len(buffer))
    if span is None:
        return None
    header_type, header_end, frame_end = span
    frame = Frame(header_type, bytes(buffer[8:header_end]), bytes(buffer[header_end:frame_end]))
    del buffer[:frame_end]
    return frame


def frame_span(buffer: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int, int] | None:
    """(header type, header end, frame end) of the frame at `at`, or None while bytes are missing."""
    if end - at < 4:
        return None
    if end - at < PREFIX.size:
        _check_length(int.from_bytes(buffer[at : at + 4], "big", signed=True))
        return None
    length, packed = PREFIX.unpack_from(buffer, at)
    _check_length(length)
    header_length = packed & 0xFFFFFF
    header_type, header_end, frame_end = packed >> 24, at + PREFIX.size + header_length, at + 4 + length
    if header_end > frame_end:
        raise FrameError(
            f"header ends at byte {header_end - at} of a frame of {4 + length} bytes: not a remoting peer?"
        )
    if header_length > HEADER_BYTES_MAX:
        raise FrameError(f"header of {header_length} bytes, at most {HEADER_BYTES_MAX} are read: not a RocketMQ peer?")
    if header_type not in (JSON, BINARY):
        raise FrameError(f"header type {header_type} is neither 0 (JSON) nor 1 (binary): not a remoting peer?")
    return (header_type, header_end, frame_end) if frame_end <= end else None


def encode_frame(header: bytes, body: bytes | None, header_type: int = JSON) -> bytes:
    """The bytes of one frame; raises FrameError when a peer would refuse it for its size."""
    size = 4 + len(header) + (len(body) if body else 0)
    if size + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size + 4} bytes is above the limit of {FRAME_BYTES_MAX}; send it in pages")
    prefix = PREFIX.pack(size, header_type << 24 | len(header))
    return b"".join((prefix, header, body)) if body else prefix + header


def encode_prefix(header_length: int, body_length: int, header_type: int = JSON) -> bytes:
    """The eight bytes before a header, for writers that send header and body as separate buffers."""
    size = 4 + header_length + body_length
    if size + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size + 4} bytes is above the limit of {FRAME_BYTES_MAX}; send it in pages")
    return PREFIX.pack(size, header_type << 24 | header_length)


def _check_length(length: int) -> None:
    if not 4 <= length <= FRAME_BYTES_MAX - 4:
        raise FrameError(f"frame length {length} is outside 4..{FRAME_BYTES_MAX - 4}: not a remoting peer?")
