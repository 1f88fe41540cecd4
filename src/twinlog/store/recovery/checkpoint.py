"""Up to which time log, queues and index are durable: the `checkpoint` file.

    0                    8                      16                  24                    32
    | physicMsgTimestamp | logicsMsgTimestamp   | indexMsgTimestamp | masterFlushedOffset | confirmPhyOffset |
    64           72                        112
    | "TWINLOG1" | copy of bytes 0 to 39   | CRC-32 of the copy |           and zeros up to 4096 bytes

Java overlooks the copy, and does not write it. One that differs in more than a few bits is older than what Java wrote;
one that differs in one or two is right, and the disk has damaged the others.

Recovery after a crash starts at the last segment whose first record is older than the checkpoint (minus
three seconds), so a time may only be entered once everything up to it is on disk. The caller therefore
flushes log, queues and index first, in that order, and saves the times it read before it began.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from twinlog.base.safe_files import read_file
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.wire.checksum import crc32

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_COPY = struct.Struct(">8s40sI")
_COPY_AT = 64
_MAGIC = b"TWINLOG1"
_FLIPPED_BITS_MAX = 2  # a later time differs in more, nearly always; if not, the older one is safe
_SAFETY_MS = 3_000


@dataclass(slots=True)
class Checkpoint:
    """Store timestamps up to which log, queues and index are durable, and two offsets."""

    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    def safe_timestamp(self, *, with_index: bool = False) -> int:
        """A record no younger than this is surely on disk and in the queues (and, if asked, in the index)."""
        oldest = min(self.physic_timestamp, self.logics_timestamp)
        if with_index:
            oldest = min(oldest, self.index_timestamp)
        return max(0, oldest - _SAFETY_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    fields = _FIELDS.pack(
        checkpoint.physic_timestamp,
        checkpoint.logics_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_offset,
    )
    copy = _COPY.pack(_MAGIC, fields, crc32(fields))
    return (fields.ljust(_COPY_AT, b"\0") + copy).ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint in `data`; a short or missing one claims nothing, which is always safe."""
    if len(data) < _FIELDS.size:
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack(_undamaged(data)))


def checkpoint_is_damaged(path: Path) -> bool:
    """Whether some bits of the file differ from their copy."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return False
    return len(data) >= _FIELDS.size and _undamaged(data) != data[: _FIELDS.size]


def _undamaged(data: bytes) -> bytes:
    """The fields as they were written last."""
    fields = data[: _FIELDS.size]
    if len(data) < _COPY_AT + _COPY.size:
        return fields
    magic, copy, crc = _COPY.unpack_from(data, _COPY_AT)
    if magic != _MAGIC or crc32(copy) != crc:
        return fields
    differing = int.from_bytes(fields, "big") ^ int.from_bytes(copy, "big")
    return copy if differing.bit_count() <= _FLIPPED_BITS_MAX else fields


def load_checkpoint(path: Path) -> Checkpoint:
    try:
        return decode_checkpoint(read_file(path))
    except FileNotFoundError:
        return Checkpoint()


def save_checkpoint(path: Path, checkpoint: Checkpoint, ops: FileOps = FILE_OPS) -> None:
    """Overwrite the file in place, as Java maps it; a torn write can only lose it, which is safe."""
    descriptor = ops.open(path, os.O_RDWR | os.O_CREAT)
    try:
        ops.write(descriptor, encode_checkpoint(checkpoint), 0)
        ops.flush(descriptor)
    finally:
        os.close(descriptor)
