"""One record of an open log is written again, over damaged bytes, while others read the log.

    1  the bytes there are still the damaged ones      else nothing is written
    2  they are copied into the quarantine, durably
    3  the record is written, in system calls: a bad disk gives an error, where mapped memory would end the process
    4  the file is flushed
    5  the bytes are read again and compared
    6  the note in the quarantine says that they are restored

Whoever reads meanwhile finds the damaged bytes, a part of the record, or all of it. Only the last agrees with its
checksum, so only that is served. A crash leaves one of the three, and the next read or start finds out which.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from twinlog.store.errors import StoreError
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.recovery.quarantine import keep_bytes, note_path, write_note

BEGUN, RESTORED = "being restored from its twin", "restored from its twin"


class MendFailed(StoreError):
    def __init__(self, path: Path, physical_offset: int, problem: str) -> None:
        super().__init__(f"the record at {physical_offset} of {path} is not mended: {problem}")


class SegmentFile:
    """A file of the log, opened once more: it stays this file, whatever becomes of the segment meanwhile.

    Its own descriptor also leaves errors of flushes to the log's descriptor, whose owner must see them. Open it in the
    thread that writes the log; read and mend in any thread.
    """

    def __init__(self, segment: Segment, ops: FileOps, *, writable: bool) -> None:
        self.path = segment.path
        self._base = segment.base
        self._ops = ops
        self._descriptor = ops.open(segment.path, os.O_RDWR if writable else os.O_RDONLY)

    @classmethod
    def at(
        cls, commit_log: CommitLog, physical_offset: int, ops: FileOps = FILE_OPS, *, writable: bool = False
    ) -> Self | None:
        """The file that holds this byte; None when the log does not have it, or it may not be written."""
        segment = commit_log.segment_at(physical_offset)
        if segment is None or segment.descriptor < 0 or (writable and not segment.writable):
            return None
        file = cls(segment, ops, writable=writable)
        if not os.path.samestat(os.fstat(file._descriptor), os.fstat(segment.descriptor)):
            file.close()  # another file has its name by now
            return None
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, physical_offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end of the file."""
        at, data = physical_offset - self._base, b""
        while len(data) < size and (piece := os.pread(self._descriptor, size - len(data), at + len(data))):
            data += piece
        return data

    def mend(self, root: Path, physical_offset: int, record: bytes, damaged: bytes) -> None:
        """Write `record` over the bytes `damaged`, durably. MendFailed when they are not there, or it is not then."""
        found = self.read(physical_offset, len(record))
        if found != damaged or len(record) != len(damaged):
            raise MendFailed(self.path, physical_offset, "its bytes have changed meanwhile")
        end = physical_offset + len(record)
        if not note_path(root, physical_offset, end).exists():
            keep_bytes(root, physical_offset, damaged, "found by a read", BEGUN, self._ops)
        self._ops.write(self._descriptor, record, physical_offset - self._base)
        self._ops.flush(self._descriptor)
        if self.read(physical_offset, len(record)) != record:
            raise MendFailed(self.path, physical_offset, "what was written is read back differently; check the disk")
        write_note(root, physical_offset, end, "found by a read", RESTORED, self._ops)
