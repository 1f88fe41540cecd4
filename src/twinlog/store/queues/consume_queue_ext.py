"""The consume queue's extension: filter data of a message, beside its queue (enableConsumeQueueExt).

    0      2           10           18            20
    | size | tags code | store time | bitmap size | bitmap ...       size 2 + n counts all of it

A file ends with size -1 where the next unit and 4 bytes would not fit. The queue's tags code then holds an
address, the unit's byte position plus the smallest int64, which no hash can be. When this data is lost, the
broker does not filter by it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from twinlog.store.queues.unit_queue import UnitQueue

_HEAD = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
_FILE_END = _SIZE.pack(-1)
_CHUNK_BYTES = 64 * 1024
_END_BYTES = 4
ADDRESS_MAX = -0x80000001  # every address is at most this, every hash above it
_ADDRESS_BASE = -0x8000_0000_0000_0000
UNIT_BYTES_MAX = 32767


class ExtUnit(NamedTuple):
    """The filter data of one message, made when it was dispatched."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes


class ConsumeQueueExt(UnitQueue):
    """Filter data of one queue: a row of bytes, addressed by position."""

    __slots__ = ()

    UNIT_BYTES = 1
    SIZE_SETTING = "mappedFileSizeConsumeQueueExt"

    def put(self, tags_code: int, store_timestamp: int, bitmap: bytes) -> int:
        """Keep the unit and return its address; `tags_code` itself when it is too large to keep."""
        size = _HEAD.size + len(bitmap)
        if size > UNIT_BYTES_MAX:
            return tags_code
        room = self.file_units - self.end % self.file_units
        if size > room - _END_BYTES:
            self._append(_FILE_END.ljust(room, b"\0"))
        address = self.end + _ADDRESS_BASE
        self._append(_HEAD.pack(size, tags_code, store_timestamp, len(bitmap)) + bitmap)
        return address

    def get(self, address: int) -> ExtUnit | None:
        """The unit at `address`; None when it is gone or was never whole."""
        at = address - _ADDRESS_BASE
        if not self.first <= at <= self.end - _HEAD.size:
            return None
        size, tags_code, store_timestamp, bitmap_size = _HEAD.unpack(self.read(at, _HEAD.size))
        if size < _HEAD.size or bitmap_size != size - _HEAD.size or at + size > self.end:
            return None
        return ExtUnit(tags_code, store_timestamp, bytes(self.read(at + _HEAD.size, bitmap_size)))

    def cut_after(self, address: int) -> None:
        """Forget what follows the unit at `address`."""
        unit = self.get(address)
        if unit is not None:
            self.cut(address - _ADDRESS_BASE + _HEAD.size + len(unit.bitmap))

    def delete_files_below(self, unit: int) -> int:
        """Delete the files wholly below the address `unit`; a tags code that is not an address deletes nothing."""
        return super().delete_files_below(unit - _ADDRESS_BASE) if unit <= ADDRESS_MAX else 0

    def _count_good(self, start: int) -> int:
        """The bytes of whole units at the front of one file; a file with its end mark counts as full."""
        path, at, base, chunk = self.path_of(start), 0, 0, b""
        while at + 2 <= self.file_units:
            if at + 2 > base + len(chunk):
                base, chunk = at, self.files.read(path, _CHUNK_BYTES, at)
            (size,) = _SIZE.unpack_from(chunk, at - base)
            if size == -1:
                return self.file_units
            if size < _HEAD.size or at + size > self.file_units:
                break
            at += size
        return at

    def _append(self, data: bytes) -> None:
        self.tail += data
        self.end += len(data)
