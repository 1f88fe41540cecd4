"""The message index: finds records by UNIQ_KEY and by each word of KEYS.

Indexing is deferred: `dispatch` only collects the records, and `drain` enters them as one batch: when there are many,
before a query and before a flush. A crash loses what was not entered, so recovery dispatches the log again from
`end_physical` on; records that are in the index are left out.

The thread that dispatches never waits for one that flushes: that one enters the records then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from twinlog.base.clock import wall_clock_ms
from twinlog.base.safe_files import refuse_link
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import OnDisk, SegmentSizeMismatch
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.file_pool import FilePool
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.request_keys import hash_batches, hash_requests
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.key_hash import hash_key
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)

PENDING_MAX = 2048
Pending = DispatchRequest | BatchRequests | ColumnBatch
_OPEN_FILES_MAX = 16


class Found(NamedTuple):
    """Candidates, newest first: hashes may collide, so the caller must compare the keys."""

    physical_offsets: list[int]
    last_update_timestamp: int
    last_update_offset: int


class Index:
    """All index files, oldest first; a dispatcher.

    `full_timestamp` is the end of the newest file that is full and durable, for the checkpoint.
    """

    def __init__(
        self,
        root: Path,
        *,
        slot_count: int = 5_000_000,
        entry_max: int = 20_000_000,
        clock_ms: Callable[[], int] = wall_clock_ms,
        ops: FileOps = FILE_OPS,
    ) -> None:
        self.full_timestamp = 0
        self._directory = f"{root}/index"
        self._slot_count = slot_count
        self._entry_max = entry_max
        self._clock_ms = clock_ms
        self._io = FilePool(ops, _OPEN_FILES_MAX)
        self._files: list[IndexFile] = []
        self._pending: list[Pending] = []
        self._pending_count = 0
        self._gathering = threading.Lock()  # around `_pending`, always brief
        self._lock = threading.RLock()  # around the files

    def load(self, *, clean: bool, trusted_timestamp: int = 0) -> None:
        """Open the files. After a crash, those that end after `trusted_timestamp` are repaired, not deleted.

        Java deletes them, and with them most of the index, as its checkpoint covers full files only.
        """
        self._files = []
        for path in self._paths():
            file = IndexFile.open(self._io, path, self._slot_count, self._entry_max)
            if not clean and file.end_timestamp > trusted_timestamp:
                file.repair()
            self._files.append(file)
        for file in self._files[:-1]:
            file.release_slots()
        self.full_timestamp = max((file.end_timestamp for file in self._files[:-1]), default=0)

    @property
    def end_physical(self) -> int:
        """Where the newest indexed record begins; all before it are in the index."""
        return self._files[-1].end_physical if self._files else 0

    @property
    def is_empty(self) -> bool:
        return not any(file.count > 1 for file in self._files)

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        """Collect the records; they enter the index when there are many, or at the next `drain`."""
        pending: Sequence[Pending] = batch
        if type(batch) is BatchRequests or (type(batch) is ColumnBatch and batch.columns is not None):
            pending = (batch,)
        with self._gathering:
            self._pending += pending
            self._pending_count += len(batch)
        if self._pending_count >= PENDING_MAX and self._lock.acquire(blocking=False):
            try:
                self.drain()
            finally:
                self._lock.release()

    def drain(self) -> None:
        """Enter what is pending. On failure it stays pending."""
        with self._lock:
            with self._gathering:
                pending, self._pending = self._pending, []
                count, self._pending_count = self._pending_count, 0
            try:
                while pending:
                    self._enter(pending)
            except OSError:
                with self._gathering:
                    self._pending = pending + self._pending
                    self._pending_count += count
                raise

    def flush(self) -> None:
        """Enter what is pending and make it durable; the slot table of the last file can wait for `close`."""
        with self._lock:
            self.drain()
            full = max((file.end_timestamp for file in self._files[:-1]), default=0)
        self._io.flush()
        self.full_timestamp = full

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> Found:
        """Records that may have this key, stored between the two times."""
        with self._lock:
            return self._query(hash_key(topic, key), count_max, begin_ms, end_ms, in_memory=False)

    def query_in_memory(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> Found:
        """The same for a loop: it raises OnDisk instead of waiting for the disk, or for a thread that flushes."""
        if not self._lock.acquire(blocking=False):
            raise OnDisk
        try:
            return self._query(hash_key(topic, key), count_max, begin_ms, end_ms, in_memory=True)
        finally:
            self._lock.release()

    def _query(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int, *, in_memory: bool) -> Found:
        self.drain()
        if not self._files:
            return Found([], 0, 0)
        found: list[int] = []
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                file.find(key_hash, count_max, begin_ms, end_ms, found, in_memory=in_memory)
            if len(found) >= count_max or file.begin_timestamp < begin_ms:
                break
        return Found(found, self._files[-1].end_timestamp, self._files[-1].end_physical)

    def truncate_after(self, log_end: int) -> None:
        """Remove what points at or beyond `log_end`."""
        with self._lock:
            with self._gathering:
                requests = [request for one in self._pending for request in _requests(one)]
                self._pending = [request for request in requests if request.physical_offset < log_end]
                self._pending_count = len(self._pending)
            while self._files and self._files[-1].end_physical >= log_end:
                file = self._files[-1]
                file.truncate_after(log_end)
                if file.count > 1:
                    return
                self._io.remove(self._files.pop().path)

    def delete_expired(self, log_start: int) -> int:
        """Delete the files whose newest record the log no longer has, never the last; returns how many went."""
        with self._lock:
            expired = [file for file in self._files[:-1] if file.end_physical < log_start]
            self._files = [file for file in self._files if file not in expired]
            for file in expired:
                self._io.remove(file.path)
            return len(expired)

    def delete_all(self) -> None:
        """Remove every file: the log is empty, or the index is built again."""
        with self._lock:
            with self._gathering:
                self._pending, self._pending_count = [], 0
            while self._files:
                self._io.remove(self._files.pop().path)

    def close(self) -> None:
        """Make everything durable, slot tables included, and close the files."""
        with self._lock:
            self.drain()
            for file in self._files:
                file.write_slots()
            self.flush()
            self._io.close()

    def _enter(self, pending: list[Pending]) -> None:
        """Enter the first of `pending`, and take it off: one batch of columns, or all of its kind before the next."""
        first = pending[0]
        if type(first) is ColumnBatch:
            columns = first.columns
            if columns is not None and int(first.records.physical_offset[0]) > self._last_entered:
                rows = columns.key_row
                offsets, times = first.records.physical_offset[rows], first.records.store_timestamp[rows]
                self._append(columns.key_hash, offsets, times)
            else:
                self._enter_requests(list(first))
            del pending[0]
            return
        kinds = list(map(type, pending))  # `isinstance` would cost as much per record as the rest
        until = min((kinds.index(kind) for kind in set(kinds) if kind is not type(first)), default=len(kinds))
        if type(first) is BatchRequests:
            self._enter_batches(pending[:until])  # pyright: ignore[reportArgumentType]
        else:
            self._enter_requests(pending[:until])  # pyright: ignore[reportArgumentType]
        del pending[:until]

    def _enter_batches(self, batches: list[BatchRequests]) -> None:
        found = hash_batches(batches) if batches[0].offsets[0] > self._last_entered else None
        if found is None:
            self._enter_requests([request for batch in batches for request in batch])
            return
        hashes, rows = found
        offsets = np.array([offset for batch in batches for offset in batch.offsets], np.int64)[rows]
        times = np.repeat([batch.store_timestamp for batch in batches], list(map(len, batches)))[rows]
        self._append(hashes, offsets, times)

    def _enter_requests(self, requests: list[DispatchRequest]) -> None:
        known = 0  # keys of the first record that are in the index already
        if requests[0].physical_offset <= (end := self._last_entered):
            requests = [request for request in requests if request.physical_offset >= end]
            if requests and requests[0].physical_offset == end:
                known = self._entries_of(end)
        hashes, rows = hash_requests(requests)
        offsets = np.array([request.physical_offset for request in requests], np.int64)[rows]
        times = np.array([request.store_timestamp for request in requests], np.int64)[rows]
        self._append(hashes[known:], offsets[known:], times[known:])

    @property
    def _last_entered(self) -> int:
        """Where the newest indexed record begins, -1 before the first."""
        return self.end_physical if self._files else -1

    def _append(self, hashes: np.ndarray, offsets: np.ndarray, times: np.ndarray) -> None:
        at = 0
        while at < len(hashes):
            file = self._current()
            end = at + min(file.room, len(hashes) - at)
            file.append(hashes[at:end], offsets[at:end], times[at:end])
            at = end

    def _current(self) -> IndexFile:
        """The file that takes the next entry; a full one is finished first."""
        last = self._files[-1] if self._files else None
        if last is not None and last.room > 0:
            return last
        if last is not None:
            last.release_slots()
        path = f"{self._directory}/{self._new_name()}"
        file = IndexFile.create(self._io, path, self._slot_count, self._entry_max, after=last)
        self._files.append(file)
        return file

    def _new_name(self) -> str:
        """Local time in 17 digits; later than the last file's, even when the clock is not."""
        now_ms = self._clock_ms()
        while True:
            name = datetime.fromtimestamp(now_ms // 1000).strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
            last = os.path.basename(self._files[-1].path) if self._files else ""
            if name > last:
                return name
            now_ms = max(now_ms + 1, _time_of(last))

    def _entries_of(self, physical_offset: int) -> int:
        """How many entries at the end of the index belong to this record; they may span two files."""
        number = 0
        for file in reversed(self._files):
            for entry in range(file.count - 1, 0, -1):
                if file.physical_offset(entry) != physical_offset:
                    return number
                number += 1
        return number

    def _paths(self) -> list[str]:
        if not os.path.isdir(self._directory):
            return []
        paths, expected = [], IndexFile(self._io, "", self._slot_count, self._entry_max).file_bytes
        for entry in sorted(os.scandir(self._directory), key=lambda entry: entry.name):
            if not (len(entry.name) == 17 and entry.name.isdigit()):
                log.warning("not an index file: ignored", path=entry.path)
                continue
            if entry.is_symlink():
                refuse_link(entry.path)
            if (size := entry.stat().st_size) == 0:  # a crash while it was made
                self._io.remove(entry.path)
            elif size != expected:
                setting = "maxHashSlotNum and maxIndexNum"
                raise SegmentSizeMismatch(Path(entry.path), found=size, expected=expected, setting=setting)
            else:
                paths.append(entry.path)
        return paths


def _requests(pending: Pending) -> Sequence[DispatchRequest]:
    return (pending,) if isinstance(pending, DispatchRequest) else pending


def _time_of(name: str) -> int:
    """The time just after the one a file is named for."""
    parsed = datetime.strptime(name[:14], "%Y%m%d%H%M%S")
    return int(parsed.timestamp()) * 1000 + int(name[14:]) + 1
