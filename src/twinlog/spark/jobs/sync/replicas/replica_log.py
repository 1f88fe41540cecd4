"""The log of a replica directory: where it ends, and how it grows.

The files are allocated ahead, so their sizes do not show where the log ends. The state records up to where the log is
durable. That is checked: the last record must be where the state says, and zeros must follow it. Otherwise a broker ran
here, or a copy was killed between writing and saving the state, and the records are scanned to find the end.

Before the first byte is written, the store gets its `abort` marker. A broker that starts here then rebuilds queues and
index from the log, starting at the offset of its own checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from twinlog.replication.replica.join import LogRange
from twinlog.spark.jobs.sync.replicas.replica_state import RangeDigest, ReplicaState, SyncFolder, new_identity
from twinlog.spark.jobs.sync.replicas.whole_records import Whole
from twinlog.store.errors import OffsetGap, SegmentSizeMismatch
from twinlog.store.file_ops import FileOps
from twinlog.store.lock import has_abort_marker, set_abort_marker
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import SEGMENT_NAME, segment_name
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.walk import LogEnd, walk_log
from twinlog.wire.checksum import crc32 as checksum
from twinlog.wire.record_layout import BEFORE_HOSTS, HEAD_BYTES, MAGIC_V1, MAGIC_V2, store_timestamp

_NOTHING = bytes(8)
_CHUNK_BYTES = 8 * 1024 * 1024


class ReplicaLog:
    """The log, and the state that records how far it is durable."""

    def __init__(self, root: Path, ops: FileOps) -> None:
        self.root = root
        self._ops = ops
        self._folder = SyncFolder(root, ops.modes)
        self.state = self._folder.load()
        self._log: CommitLog | None = None
        self._segment_bytes = 0
        self.log_start = 0
        self.log_end = 0
        self.last_record_offset: int | None = None
        self._unsaved = 0  # records after the state's end
        self.is_state_unsaved = False
        self._state_is_valid = False  # the state's last record is where it should be

    @property
    def ops(self) -> FileOps:
        return self._ops

    def close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def log(self) -> LogRange:
        return LogRange(self.log_start, self.log_end)

    @property
    def segment_bytes(self) -> int:
        """The size of the files that are there; 0 in an empty log."""
        return self._segment_bytes

    @property
    def commit_log(self) -> CommitLog:
        if self._log is None:
            self._log = CommitLog([self.root / "commitlog"], self._segment_bytes, ops=self._ops)
            self._log.load()
            self._log.log_end = self._log.flushed_end = self.log_end
        return self._log

    def record_at(self, physical_offset: int) -> memoryview | None:
        return self.commit_log.record(physical_offset)

    def find_log(self) -> None:
        """Find the start and the end of the log."""
        names = self._segment_names()
        if not names:
            if self.state.end:  # its files were removed: this is a new replica
                self.state = ReplicaState(new_identity(), adopted=self.state.adopted, seen_ms=self.state.seen_ms)
            return
        sizes = {(self.root / "commitlog" / name).stat().st_size for name in names} - {0}
        self._segment_bytes = max(sizes, default=0)
        if len(sizes) > 1:
            path = self.root / "commitlog" / names[-1]
            raise SegmentSizeMismatch(
                path, found=min(sizes), expected=self._segment_bytes, setting="mappedFileSizeCommitLog"
            )
        self.log_start = int(names[0])
        self.log_end, self.last_record_offset = self.state.end, self.state.last_record
        self._state_is_valid = self._has_last_record()
        if self._state_is_valid and self._read(self.state.end, 8) in (b"", _NOTHING):
            return
        self._walk(self.state.end if self._state_is_valid else self.log_start)

    def _has_last_record(self) -> bool:
        """Whether the state's last record is in the log, and ends where the state ends."""
        state = self.state
        if state.last_record < self.log_start or state.end <= 0:
            return False
        head = self._read(state.last_record, BEFORE_HOSTS.size)
        if len(head) < BEFORE_HOSTS.size:
            return False
        size, magic, _, _, _, _, physical_offset, _, _ = BEFORE_HOSTS.unpack(head)
        after = state.last_record + size
        ends = after == state.end or (after < state.end and state.end % self._segment_bytes == 0)
        return ends and magic in (MAGIC_V1, MAGIC_V2) and physical_offset == state.last_record

    def _walk(self, begin: int) -> None:
        """Scan the records from `begin` on to find the end of the log."""
        self.log_end = begin
        if not self._state_is_valid:
            self.state.end, self.last_record_offset = begin, None
        commit_log = self.commit_log
        commit_log.log_end = commit_log.segments[-1].end
        for found in walk_log(commit_log, begin):
            if isinstance(found, ScannedRecords):
                self._unsaved += len(found)
                self.last_record_offset = int(found.physical_offset[-1])
            elif isinstance(found, LogEnd):
                self.log_end = found.physical_offset
        commit_log.log_end = self.log_end
        commit_log.flushed_end = begin

    def _read(self, physical_offset: int, size: int) -> bytes:
        """Bytes from this offset on, within its file; fewer or none if the file ends or is missing."""
        base = physical_offset - physical_offset % self._segment_bytes
        try:
            descriptor = os.open(self.root / "commitlog" / segment_name(base), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, size, physical_offset - base)
        finally:
            os.close(descriptor)

    def segment_bases(self) -> list[int]:
        """Where each segment begins, the oldest first."""
        return [int(name) for name in self._segment_names()]

    def stored_ms_at(self, physical_offset: int) -> int | None:
        """When the record at this offset was stored, by its master's clock; None if there is no record."""
        head = self._read(physical_offset, HEAD_BYTES)
        if len(head) < HEAD_BYTES or BEFORE_HOSTS.unpack_from(head)[1] not in (MAGIC_V1, MAGIC_V2):
            return None
        return store_timestamp(memoryview(head))

    def _segment_names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.root / "commitlog") if SEGMENT_NAME.match(name))
        except FileNotFoundError:
            return []

    # -- growing -----------------------------------------------------------------------------------

    def begin_copy(self, master: LogRange, segment_bytes: int, range_bytes_max: int, now_ms: int) -> int:
        """Prepare to append; returns from where the master's bytes are wanted.

        Bytes after the state's end are copied again if they are at most one range. More than that was written by a
        broker that ran here: it was scanned and compared with the master at its end, and is kept.
        """
        state = self.state
        if not self._segment_bytes:
            self._segment_bytes = segment_bytes
        if state.end < self.log_end:
            if self._state_is_valid and self.log_end - state.end <= range_bytes_max and state.end >= master.start:
                self.log_end, self.last_record_offset = state.end, state.last_record
            else:
                self._save_found(now_ms)
        commit_log = self.commit_log
        if self._unsaved or (commit_log.segments and commit_log.segments[-1].base > self.log_end):
            commit_log.truncate(self.log_end)
        commit_log.log_end = commit_log.flushed_end = self.log_end
        if not has_abort_marker(self.root):
            set_abort_marker(self.root, self._ops)
        return self.log_end

    def append(self, whole: Whole) -> None:
        """Write records at the log's end; not through the mapping, where a full disk would kill the process."""
        commit_log, data = self.commit_log, whole.data
        if not commit_log.segments and commit_log.log_end != whole.begin:
            commit_log.begin_at(whole.begin)
        if commit_log.log_end != whole.begin:
            raise OffsetGap(log_end=commit_log.log_end, data_begins=whole.begin)
        while data:
            room = commit_log.raw_room(len(data))
            commit_log.raw_written(commit_log.log_end + room.write([data[: room.size]], room.position))
            data = data[room.size :]
        self.log_end = whole.end
        if whole.last_record >= 0:
            self.last_record_offset = whole.last_record

    def commit(
        self, begin: int, crc32: int, records: int, *, source: str, took_ms: Callable[[], int], now_ms: int
    ) -> None:
        """Make all appended bytes durable, then save the state."""
        self.commit_log.flush()
        state, number = self.state, self.state.range_sequence + 1
        digest = RangeDigest(number, begin, self.log_end, crc32, records, source, took_ms(), now_ms)
        saved = replace(
            state,
            end=self.log_end,
            last_record=-1 if self.last_record_offset is None else self.last_record_offset,
            ranges=[*state.ranges, digest],
            range_sequence=number,
        )
        self._folder.save(saved)
        self.is_state_unsaved = False
        # Only now: if saving failed, the next range gets this number again, perhaps with another end.
        state.end, state.last_record = saved.end, saved.last_record
        state.ranges, state.range_sequence = saved.ranges, saved.range_sequence

    def drop_unsaved(self) -> None:
        """Free the space of bytes after the state's end: a full disk needs it, and they are copied again.

        The next tick then does not scan them: on a full tmpfs, reading a hole through a mapping kills the process.
        """
        commit_log, end = self.commit_log, self.state.end
        if not end:
            commit_log.clear()
        else:
            for segment in commit_log.segments:
                if segment.base <= end < segment.end:
                    os.ftruncate(segment.descriptor, end - segment.base)
                    os.ftruncate(segment.descriptor, segment.size)
            commit_log.truncate(end)
        self.log_end, self.last_record_offset, self._unsaved = end, self.state.last_record, 0

    def save_damage(self, physical_offset: int) -> None:
        """Remember where the master sent a damaged record."""
        self.state.known_damage = physical_offset
        self._folder.save(self.state)

    def _save_found(self, now_ms: int) -> None:
        """Record the bytes that a broker wrote here as a range."""
        begin, crc, at = self.state.end, 0, self.state.end
        while at < self.log_end and (chunk := self.commit_log.chunk(at, _CHUNK_BYTES)):
            crc = checksum(chunk, crc)
            at += len(chunk)
        self.commit(begin, crc, self._unsaved, source="found", took_ms=lambda: 0, now_ms=now_ms)
