"""A replica directory, locked and opened for one tick: its lock and its metadata; its log is in `replica_log`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Self

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.replication.metadata.kinds import KIND_BY_NAME, KINDS
from twinlog.spark.jobs.sync.replicas.metadata_changes import Image, adopt_again, differences, image_of, versions_of
from twinlog.spark.jobs.sync.replicas.replica_log import ReplicaLog
from twinlog.spark.jobs.sync.replicas.replica_state import Change, JournalEntry, seen_after
from twinlog.store.errors import StoreError, StoreLocked
from twinlog.store.file_ops import FileOps
from twinlog.store.lock import StoreLock

_LOCK_RETRY_S = 0.1


class ReplicaInUse(StoreError):
    """A broker or another synchronisation uses the directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            f"{root} is locked by a running broker or another synchronisation: stop it, or copy to another directory"
        )


class SparseFiles(FileOps):
    """Sparse segments take space only as they are written; otherwise hundreds of idle replicas would fill a disk."""

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
        """Does nothing: nothing is written through a mapping, so a full disk is an ordinary write error."""


SPARSE_FILES = SparseFiles()


class Replica(ReplicaLog):
    """The log and the metadata tables of one replica; `Handshake` compares it with the master's."""

    def __init__(self, root: Path, lock: StoreLock, ops: FileOps) -> None:
        super().__init__(root, ops)
        self._lock = lock

    @classmethod
    def open(cls, root: Path, *, lock_wait_s: float = 0.0, ops: FileOps = SPARSE_FILES) -> Self:
        """Lock the directory, which is created if necessary, and finish what an interrupted tick began."""
        with contextlib.ExitStack() as undo:
            lock = _acquire(root, lock_wait_s, ops)
            undo.callback(lock.release)
            replica = cls(root, lock, ops)
            undo.callback(replica.close)
            replica._redo()
            replica.find_log()
            undo.pop_all()
        return replica

    def close(self) -> None:
        self.close_log()
        self._lock.release()

    def tables(self, now_ms: int) -> MetadataTables:
        tables = open_tables(self.root / "config", now_ms, modes=self._ops.modes)
        tables.load()
        tables.offsets.follows_master = True
        return tables

    def holds(self) -> dict[str, str]:
        """The revisions of the tables; empty if another program has written one of their files since."""
        return self.state.held if self.state.stamps == self._stamps() else {}

    def adopt(self, before: Image, tables: MetadataTables, held: dict[str, str], now_ms: int) -> list[Change]:
        """Write the differences from `before` to the journal, then save the tables; the state is saved later.

        That is once for metadata and log, since an `fsync` is most of a tick. Killed before it, the journal is redone.
        """
        changes = differences(before, image_of(tables), versions_of(tables))
        if changes:
            sequence = max([self.state.adopted, *self._folder.sequences()]) + 1
            self.state.seen_ms = seen_after(self.state.seen_ms, now_ms)
            self._folder.write(JournalEntry(sequence, self.state.seen_ms, changes))
            tables.save()
            self.state.adopted = sequence
        else:
            tables.save()  # only a version may have changed
        stamps = self._stamps()
        versions = {kind: version for kind, version in versions_of(tables).items() if kind in KIND_BY_NAME}
        if changes or (held, stamps, versions) != (self.state.held, self.state.stamps, self.state.versions):
            self.state.held, self.state.stamps, self.state.versions = held, stamps, versions
            self.is_state_unsaved = True
        return changes

    def entries(self, after: int) -> list[JournalEntry]:
        """The journal entries after number `after`; the others are in the history table and are removed."""
        self._folder.forget_entries(after)
        return [self._folder.entry(sequence) for sequence in self._folder.sequences() if sequence > after]

    def forget_ranges(self, up_to: int) -> None:
        """Drop ranges that are in the history table from the state; it is saved later."""
        self.state.ranges = [one for one in self.state.ranges if one.sequence > up_to]

    def save_state(self) -> None:
        self._folder.save(self.state)
        self.is_state_unsaved = False

    def _redo(self) -> None:
        """Apply journal entries that an interrupted tick wrote and did not finish."""
        waiting = [sequence for sequence in self._folder.sequences() if sequence > self.state.adopted]
        if not waiting:
            return
        tables = self.tables(0)
        for sequence in waiting:
            entry = self._folder.entry(sequence)
            adopt_again(tables, entry.changes)
            self.state.seen_ms = entry.seen_ms
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


def _acquire(root: Path, wait_s: float, ops: FileOps) -> StoreLock:
    """The store's lock; tasks of a killed run may still hold it for a moment."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return StoreLock.acquire(root, ops)
        except StoreLocked as error:
            if time.monotonic() >= deadline:
                raise ReplicaInUse(root) from error
            time.sleep(_LOCK_RETRY_S)
