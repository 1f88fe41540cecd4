"""A replica directory, locked and opened for one tick.

The end of a log cannot be told from its files, which are allocated ahead. The state says where the log is durable; what
is there is looked at again: the last record must stand where the state says, and nothing behind it. Otherwise a broker
ran here, or a copy was killed between writing and noting, and the records are walked to find the end.

Before the first byte is written, the store gets its `abort` marker: whichever broker starts here then builds queues and
index from the log, from the last place that its own checkpoint vouches for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.replication.metadata.kinds import KINDS
from twinlog.replication.replica.join import LogRange
from twinlog.spark.jobs.sync.metadata_changes import Image, adopt_again, differences, image_of, versions_of
from twinlog.spark.jobs.sync.replica_state import (
    Change,
    JournalEntry,
    RangeDigest,
    ReplicaState,
    SyncFolder,
    new_identity,
)
from twinlog.spark.jobs.sync.whole_records import Whole
from twinlog.store.errors import OffsetGap, SegmentSizeMismatch, StoreError, StoreLocked
from twinlog.store.file_ops import FileOps
from twinlog.store.lock import StoreLock, has_abort_marker, set_abort_marker
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import SEGMENT_NAME, segment_name
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.walk import LogEnd, walk_log
from twinlog.wire.checksum import crc32 as checksum
from twinlog.wire.record_layout import BEFORE_HOSTS, MAGIC_V1, MAGIC_V2

_NOTHING = bytes(8)
_CHUNK_BYTES = 8 * 1024 * 1024
_LOCK_RETRY_S = 0.1


class ReplicaInUse(StoreError):
    """Somebody else has the directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            f"{root} is locked by a running broker or another synchronisation: stop it, or copy to another directory"
        )


class SparseFiles(FileOps):
    """Segments take space as they are written: hundreds of idle replicas would otherwise fill a disk with zeros."""

    def allocate(self, path: Path, size: int) -> int:
        descriptor = self.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            os.ftruncate(descriptor, size)
        except BaseException:
            os.close(descriptor)
            self.remove(path)
            raise
        return descriptor

    def secure(self, descriptor: int, size: int) -> None:
        """Nothing: a write that finds no space is an error like any other, as nothing is written through a mapping."""


SPARSE_FILES = SparseFiles()


class Replica:
    """The log and the tables of one replica. It is what `Handshake` compares with the master's."""

    def __init__(self, root: Path, lock: StoreLock, ops: FileOps) -> None:
        self.root = root
        self._lock = lock
        self._ops = ops
        self._folder = SyncFolder(root, ops.modes)
        self.state = self._folder.load()
        self._log: CommitLog | None = None
        self._segment_bytes = 0
        self.log_start = 0
        self.log_end = 0
        self.last_record_offset: int | None = None
        self._unnoted = 0  # records beyond the state's end
        self._is_noted = False  # the state's last record stands where it should

    @classmethod
    def open(cls, root: Path, *, lock_wait_s: float = 0.0, ops: FileOps = SPARSE_FILES) -> Self:
        """Lock the directory, which is made if need be, and finish what an interrupted tick began."""
        with contextlib.ExitStack() as undo:
            lock = _acquire(root, lock_wait_s, ops)
            undo.callback(lock.release)
            replica = cls(root, lock, ops)
            undo.callback(replica.close)
            replica._redo()
            replica._find_log()
            undo.pop_all()
        return replica

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._lock.release()

    # -- metadata ----------------------------------------------------------------------------------

    def tables(self, now_ms: int) -> MetadataTables:
        tables = open_tables(self.root / "config", now_ms, modes=self._ops.modes)
        tables.load()
        tables.offsets.follows_master = True
        return tables

    def holds(self) -> dict[str, str]:
        """The revisions that the tables are at; none when somebody else has written a file since."""
        return self.state.held if self.state.stamps == self._stamps() else {}

    def adopt(self, before: Image, tables: MetadataTables, held: dict[str, str], now_ms: int) -> list[Change]:
        """Journal what differs from `before`, then save the tables, then note it."""
        changes = differences(before, image_of(tables), versions_of(tables))
        if changes:
            sequence = max([self.state.adopted, *self._folder.sequences()]) + 1
            self._folder.write(JournalEntry(sequence, now_ms, changes))
            tables.save()
            self.state.adopted = sequence
        else:
            tables.save()  # a version may be all that changed
        stamps = self._stamps()
        if changes or held != self.state.held or stamps != self.state.stamps:
            self.state.held, self.state.stamps = held, stamps
            self._folder.save(self.state)
        return changes

    def entries(self, after: int) -> list[JournalEntry]:
        """The journal's entries behind number `after`; those up to it are in the history table and go."""
        self._folder.forget_entries(after)
        return [self._folder.entry(sequence) for sequence in self._folder.sequences() if sequence > after]

    def forget_ranges(self, up_to: int) -> None:
        """Ranges that are in their table; dropped from the state whenever that is saved next."""
        self.state.ranges = [one for one in self.state.ranges if one.sequence > up_to]

    def save_state(self) -> None:
        self._folder.save(self.state)

    def _redo(self) -> None:
        """Adopt journal entries that an interrupted tick wrote and did not finish."""
        waiting = [sequence for sequence in self._folder.sequences() if sequence > self.state.adopted]
        if not waiting:
            return
        tables = self.tables(0)
        for sequence in waiting:
            adopt_again(tables, self._folder.entry(sequence).changes)
        tables.save()
        self.state.adopted, self.state.held = waiting[-1], {}
        self._folder.save(self.state)

    def _stamps(self) -> dict[str, tuple[int, int]]:
        stamps = {}
        for name in (kind.file_name for kind in KINDS):
            try:
                found = os.stat(self.root / "config" / name)
            except FileNotFoundError:
                continue
            stamps[name] = (found.st_mtime_ns, found.st_size)
        return stamps

    # -- the log as it is --------------------------------------------------------------------------

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

    def _find_log(self) -> None:
        names = self._segment_names()
        if not names:
            if self.state.end:  # the files were taken away: this is another replica now
                self.state = ReplicaState(new_identity(), adopted=self.state.adopted)
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
        self._is_noted = self._last_record_stands()
        if self._is_noted and self._read(self.state.end, 8) in (b"", _NOTHING):
            return
        self._walk(self.state.end if self._is_noted else self.log_start)

    def _last_record_stands(self) -> bool:
        """Whether the state's last record is still where the state says, and the last one before its end."""
        state = self.state
        if state.last_record < self.log_start or state.end <= 0:
            return False
        head = self._read(state.last_record, BEFORE_HOSTS.size)
        if len(head) < BEFORE_HOSTS.size:
            return False
        size, magic, _, _, _, _, physical_offset, _, _ = BEFORE_HOSTS.unpack(head)
        behind = state.last_record + size
        ends = behind == state.end or (behind < state.end and state.end % self._segment_bytes == 0)
        return ends and magic in (MAGIC_V1, MAGIC_V2) and physical_offset == state.last_record

    def _walk(self, begin: int) -> None:
        self.log_end = begin
        if not self._is_noted:
            self.state.end, self.last_record_offset = begin, None
        commit_log = self.commit_log
        commit_log.log_end = commit_log.segments[-1].end
        for found in walk_log(commit_log, begin):
            if isinstance(found, ScannedRecords):
                self._unnoted += len(found)
                self.last_record_offset = int(found.physical_offset[-1])
            elif isinstance(found, LogEnd):
                self.log_end = found.physical_offset
        commit_log.log_end = self.log_end
        commit_log.flushed_end = begin

    def _read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of the file that holds this offset; fewer or none where there is none."""
        base = physical_offset - physical_offset % self._segment_bytes
        try:
            descriptor = os.open(self.root / "commitlog" / segment_name(base), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, size, physical_offset - base)
        finally:
            os.close(descriptor)

    def _segment_names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.root / "commitlog") if SEGMENT_NAME.match(name))
        except FileNotFoundError:
            return []

    # -- the log as it grows -----------------------------------------------------------------------

    def begin_copy(self, master: LogRange, segment_bytes: int, range_bytes_max: int, now_ms: int) -> int:
        """Get ready to append; where the master's bytes are wanted from.

        What was written and not noted is asked for again if it is not more than one range. A longer stretch is what a
        broker left that ran here: it was walked, compared with the master at its end, and counts as it is.
        """
        state = self.state
        if not self._segment_bytes:
            self._segment_bytes = segment_bytes
        if state.end < self.log_end:
            if self._is_noted and self.log_end - state.end <= range_bytes_max and state.end >= master.start:
                self.log_end, self.last_record_offset = state.end, state.last_record
            else:
                self._note_found(now_ms)
        commit_log = self.commit_log
        if self._unnoted or (commit_log.segments and commit_log.segments[-1].base > self.log_end):
            commit_log.truncate(self.log_end)
        commit_log.log_end = commit_log.flushed_end = self.log_end
        if not has_abort_marker(self.root):
            set_abort_marker(self.root, self._ops)
        return self.log_end

    def append(self, whole: Whole) -> None:
        """Write records behind the log's end; never through the mapping, where a full disk would kill the process."""
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
        """Make everything appended durable, and only then note that it is there."""
        self.commit_log.flush()
        state, number = self.state, self.state.range_sequence + 1
        digest = RangeDigest(number, begin, self.log_end, crc32, records, source, took_ms(), now_ms)
        noted = replace(
            state,
            end=self.log_end,
            last_record=-1 if self.last_record_offset is None else self.last_record_offset,
            ranges=[*state.ranges, digest],
            range_sequence=number,
        )
        self._folder.save(noted)
        # Not before: a range whose note is lost gets its number again, with another end perhaps.
        state.end, state.last_record = noted.end, noted.last_record
        state.ranges, state.range_sequence = noted.ranges, noted.range_sequence

    def drop_unnoted(self) -> None:
        """Give back the room of what was written and not noted: a full disk needs it, and it is copied again.

        Nor does the next tick walk these bytes then: on a full tmpfs, looking at a hole through a mapping is fatal.
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
        self.log_end, self.last_record_offset, self._unnoted = end, self.state.last_record, 0

    def note_damage(self, physical_offset: int) -> None:
        self.state.known_damage = physical_offset
        self._folder.save(self.state)

    def _note_found(self, now_ms: int) -> None:
        begin, crc, at = self.state.end, 0, self.state.end
        while at < self.log_end and (chunk := self.commit_log.chunk(at, _CHUNK_BYTES)):
            crc = checksum(chunk, crc)
            at += len(chunk)
        self.commit(begin, crc, self._unnoted, source="found", took_ms=lambda: 0, now_ms=now_ms)


def _acquire(root: Path, wait_s: float, ops: FileOps) -> StoreLock:
    """The store's lock; a copy that was just killed may hold it for a moment longer."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return StoreLock.acquire(root, ops)
        except StoreLocked as error:
            if time.monotonic() >= deadline:
                raise ReplicaInUse(root) from error
            time.sleep(_LOCK_RETRY_S)
