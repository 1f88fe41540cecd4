"""What travels on the HA port, big-endian, without length prefix, checksum or version.

    replica to master, a report:     | log end 8 |
    master to replica, a transfer:   | physical offset 8 | size 4 | data ... |

A transfer of size 0 is a heartbeat. Data is any slice of the commit log that stays within one segment.

A Twinlog replica that has introduced itself on the remoting port of a Twinlog master sends one word before its first
report: the pass that the master returned. A pass is negative; a report never is. Java masters get no pass.
"""

import struct
from dataclasses import dataclass

from twinlog.replication.errors import TransferError

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")
HEAD_BYTES = HEAD.size
TRANSFER_BYTES_MAX = 4 * 1024 * 1024 - HEAD_BYTES - 1  # a Java replica reads into a buffer of 4 MiB
_PASS_MARK = -(1 << 63)
_PASS_BITS = 62


@dataclass(frozen=True, slots=True)
class TransferHead:
    physical_offset: int
    size: int


def encode_report(log_end: int) -> bytes:
    return REPORT.pack(log_end)


def encode_head(physical_offset: int, size: int) -> bytes:
    return HEAD.pack(physical_offset, size)


def decode_head(data: bytes | bytearray | memoryview, at: int = 0) -> TransferHead:
    """The header of a transfer; TransferError for one that no master writes."""
    head = TransferHead(*HEAD.unpack_from(data, at))
    if head.physical_offset < 0 or not 0 <= head.size <= TRANSFER_BYTES_MAX:
        raise TransferError(
            f"transfer of {head.size} bytes at {head.physical_offset}: is the address a master's HA port?"
        )
    return head


def encode_pass(number: int) -> bytes:
    """The word with which the HA port recognises a replica; `number` comes from the master."""
    return REPORT.pack(_PASS_MARK | number & (1 << _PASS_BITS) - 1)


def pass_number(word: int) -> int | None:
    """The number in a pass; None when `word` is a report."""
    return word & (1 << _PASS_BITS) - 1 if word < -(1 << _PASS_BITS) else None
