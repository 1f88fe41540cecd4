"""The checksum of a whole record (enabledAppendPropCRC), kept as its last property.

    ... properties | __CRC32# U+0001 | ten digits | U+0002
                   | 9 bytes         | 10         | 1

The digits are the CRC-32 of all bytes before these 20 (sign bit cleared), least significant digit first, zeros at the
end. Records with and without it may follow one another in one log: a message whose properties leave no room for it is
stored without. So a reader checks it where it is: where most of the ten fixed bytes are right, since a flipped bit may
hit one of those as well.

A message that is sent again still has the checksum of its old record. Appending removes that. A Java broker that writes
no checksums keeps it as a property, mostly between others (their order is that of a hash map). Where it is the last,
it is taken for the record's own, which then counts as damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import eq

import numpy as np

from twinlog.wire.checksum import crc32

CRC_PROPERTY_BYTES = 20
CRC_NAME = b"__CRC32#\x01"
CRC_SIGN = ord("#")  # a number is found in bytes seven times faster than bytes are, so it is looked for first
_END = b"\x02"
_BACKWARDS = _END + b"%010d" + CRC_NAME[::-1]
_FIXED_PLACES = [*range(9), 19]
_FIXED = np.frombuffer(CRC_NAME + _END, np.uint8)
_ALIKE_MIN = 7  # of the ten fixed bytes
_POWERS = 10 ** np.arange(10, dtype=np.int64)
_WORD = 0x7FFFFFFF


def crc_property(record: bytes | memoryview, before: int = 0) -> bytes:
    """The last property of a record whose other bytes are `record`, or end so, and `before` is the CRC of the rest."""
    return (_BACKWARDS % (crc32(record, before) & _WORD))[::-1]


def with_crcs(records: Sequence[bytes]) -> bytes:
    """A few records back to back, each with its last property."""
    crcs = [crc & _WORD for crc in map(crc32, records)]
    texts = (_BACKWARDS * len(crcs) % tuple(reversed(crcs)))[::-1]
    parts = [b""] * (2 * len(crcs))
    parts[0::2] = records
    parts[1::2] = struct.unpack(f"{CRC_PROPERTY_BYTES}s" * len(crcs), texts)
    return b"".join(parts)


def crc_properties(crcs: np.ndarray) -> np.ndarray:
    """The last properties of many records, given the CRC-32 of each one's other bytes: a row of bytes for each."""
    rows = np.empty((len(crcs), CRC_PROPERTY_BYTES), np.uint8)
    rows[:, _FIXED_PLACES] = _FIXED
    rows[:, 9:19] = (crcs & _WORD).astype(np.int64)[:, None] // _POWERS % 10 + ord("0")
    return rows


def ends_in_crc(properties: bytes) -> bool:
    """Whether the record with these properties has a checksum, perhaps a damaged one."""
    end = properties[-CRC_PROPERTY_BYTES:]
    if len(end) < CRC_PROPERTY_BYTES:
        return False
    if end[:8] == CRC_NAME[:8]:
        return True
    if end[8] != 1:
        return False
    return sum(map(eq, end, CRC_NAME)) + (end[19] == 2) >= _ALIKE_MIN


def has_valid_crc(record: bytes | memoryview) -> bool:
    """Whether the record ends with the checksum of its other bytes; False when it has no checksum."""
    end = len(record) - CRC_PROPERTY_BYTES
    return end >= 0 and bytes(record[end:]) == crc_property(record[:end])


def crc_rows(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the last 20 bytes of many records, a row each: which rows are a checksum, and the CRC that they say.

    The CRC of a row whose fixed bytes or digits are damaged is -1.
    """
    alike = (ends[:, _FIXED_PLACES] == _FIXED).sum(axis=1)
    digits = ends[:, 9:19].astype(np.int64) - ord("0")
    whole = (alike == len(_FIXED)) & (digits >= 0).all(axis=1) & (digits <= 9).all(axis=1)
    has_crc = (alike >= _ALIKE_MIN) & ((ends[:, 8] == 1) | (ends[:, :8] == _FIXED[:8]).all(axis=1))
    return has_crc, np.where(whole, digits @ _POWERS, -1)


def for_crc(properties: bytes) -> bytes:
    """The properties text without a checksum of another record, closed so that this record's own can follow."""
    properties = without_crc(properties)
    return properties if not properties or properties.endswith(_END) else properties + _END


def without_crc(properties: bytes) -> bytes:
    """The properties text without the checksum of a record that the message had before."""
    if CRC_SIGN not in properties or CRC_NAME not in properties:
        return properties
    at = len(properties) - CRC_PROPERTY_BYTES
    before = properties[at - 1 : at] if at > 0 else _END
    if properties.find(CRC_NAME) == at and before == _END and properties.find(_END, at) == len(properties) - 1:
        return properties[:at]  # as the record of a message has it that is stored again
    pairs = [pair for pair in properties.split(_END) if not pair.startswith(CRC_NAME)]
    return _END.join(pairs)
