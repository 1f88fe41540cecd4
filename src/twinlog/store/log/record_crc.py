"""The optional checksum of a whole record (enabledAppendPropCRC), kept as its last property.

The last 20 bytes of the record are `__CRC32#` U+0001, ten digits, U+0002. The digits are the CRC-32 of all
bytes before them (sign bit cleared), least significant digit first, padded with zeros on the right.
"""

from __future__ import annotations

import mmap

from twinlog.wire.checksum import crc32

CRC_PROPERTY_BYTES = 20
_NAME = b"__CRC32#\x01"
_END = b"\x02"


def crc_property(buffer: bytes | bytearray | memoryview | mmap.mmap, begin: int, end: int) -> bytes:
    """The property for the record bytes `begin` to `end` of `buffer`."""
    with memoryview(buffer) as view:
        crc = crc32(view[begin:end]) & 0x7FFFFFFF
    return _NAME + str(crc)[::-1].ljust(10, "0").encode() + _END


def has_valid_crc(record: bytes | memoryview) -> bool:
    """Whether the record ends with the checksum of its other bytes; False when it has no checksum."""
    if len(record) < CRC_PROPERTY_BYTES:
        return False
    end = len(record) - CRC_PROPERTY_BYTES
    return bytes(record[end:]) == crc_property(record, 0, end)


def with_separator(properties: bytes) -> bytes:
    """The properties text, closed so that the checksum can follow as a pair of its own."""
    return properties if not properties or properties.endswith(_END) else properties + _END
