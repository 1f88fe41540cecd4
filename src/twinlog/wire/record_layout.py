"""The layout of a message record, as the commit log keeps it and pulls deliver it.

Big-endian; a host is 8 bytes, or 20 with its IPv6 bit set in sysFlag:

    0           4       8         12        16     20            28               36        40
    | totalSize | magic | bodyCRC | queueId | flag | queueOffset | physicalOffset | sysFlag | bornTimestamp ...
    48         56               64          72               76           84           88
    | bornHost | storeTimestamp | storeHost | reconsumeTimes | preparedTx | bodyLength | body ...
    | topicLength (V1: 1 byte, V2: 2) | topic | propertiesLength 2 | properties

A blank record is only a size and a magic: the rest of its segment is unused.

Every encoder, decoder and scan takes its offsets and types from here. `message` is the plain codec.
"""

import struct

from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]  # the bytes that V1 and V2 have in common
TOPIC_BYTES_V1_MAX = 127
HOST_BYTES, HOST_V6_BYTES = 8, 20
V6_EXTRA_BYTES = HOST_V6_BYTES - HOST_BYTES

# The head, which is everything before the body, with two IPv4 hosts: each field and its `struct` code.
HEAD_FIELDS = (
    ("size", "i"),
    ("magic", "I"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_timestamp", "q"),
    ("born_host", "8s"),
    ("store_timestamp", "q"),
    ("store_host", "8s"),
    ("reconsume_times", "i"),
    ("prepared_transaction_offset", "q"),
    ("body_length", "i"),
)
_CODES = [code for _, code in HEAD_FIELDS]
FIELD_AT = {name: struct.calcsize(">" + "".join(_CODES[:n])) for n, (name, _) in enumerate(HEAD_FIELDS)}

SIZE_AND_MAGIC = struct.Struct(">iI")
BEFORE_HOSTS = struct.Struct(">" + "".join(_CODES[:9]))  # totalSize .. bornTimestamp
TIMESTAMP = struct.Struct(">q")  # storeTimestamp, between the hosts
BEHIND_HOSTS = struct.Struct(">" + "".join(_CODES[12:]))  # reconsumeTimes, preparedTransactionOffset, bodyLength
PROPERTIES_LENGTH = struct.Struct(">h")

# Whole heads, by (born host is IPv6) + 2 * (store host is IPv6).
HEADS = [
    struct.Struct(f"{BEFORE_HOSTS.format}{born}sq{store}s{BEHIND_HOSTS.format[1:]}")
    for store in (HOST_BYTES, HOST_V6_BYTES)
    for born in (HOST_BYTES, HOST_V6_BYTES)
]
HEAD_BYTES = HEADS[0].size
HOSTS_AT = BEFORE_HOSTS.size
BLANK_BYTES = SIZE_AND_MAGIC.size
RECORD_BYTES_MIN = HEAD_BYTES + 1 + PROPERTIES_LENGTH.size  # without body, topic and properties

# The head for `np.dtype`. Clients decode records without numpy, so it is not imported here.
_NUMPY_TYPES = {"i": ">i4", "I": ">u4", "q": ">i8", "8s": "V8"}
HEAD_NUMPY_FIELDS = [(name, _NUMPY_TYPES[code]) for name, code in HEAD_FIELDS]

_INT = struct.Struct(">i")
_SYS_FLAG_AT = FIELD_AT["sys_flag"]
_STORE_TIMESTAMP_AT = FIELD_AT["store_timestamp"]
_BODY_LENGTH_AT = FIELD_AT["body_length"]


def is_blank(record: bytes | memoryview) -> bool:
    """Whether a segment's records end here: a blank record begins, or too few bytes are left for any record."""
    return len(record) < BLANK_BYTES or SIZE_AND_MAGIC.unpack_from(record)[1] == MAGIC_BLANK


def store_timestamp(record: memoryview) -> int:
    """The store timestamp of a whole record."""
    flags = _INT.unpack_from(record, _SYS_FLAG_AT)[0]
    at = _STORE_TIMESTAMP_AT + (V6_EXTRA_BYTES if flags & BORN_HOST_V6 else 0)
    return TIMESTAMP.unpack_from(record, at)[0]


def record_properties(record: memoryview) -> memoryview:
    """The properties inside a whole record, in text form."""
    magic, flags = SIZE_AND_MAGIC.unpack_from(record)[1], _INT.unpack_from(record, _SYS_FLAG_AT)[0]
    at: int = _BODY_LENGTH_AT
    at += (V6_EXTRA_BYTES if flags & BORN_HOST_V6 else 0) + (V6_EXTRA_BYTES if flags & STORE_HOST_V6 else 0)
    at += 4 + _INT.unpack_from(record, at)[0]
    at += 2 + PROPERTIES_LENGTH.unpack_from(record, at)[0] if magic == MAGIC_V2 else 1 + record[at]
    return record[at + 2 : at + 2 + PROPERTIES_LENGTH.unpack_from(record, at)[0]]
