"""The files of a store, read only: nothing is locked, changed or deleted, so it may be live, stopped, or Java's.

Settings follow from the sizes of files. Only the two sizes of the index do not: they must be given unless they are
the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from twinlog.store.errors import NotAStore
from twinlog.store.index.index_file import ENTRY_TYPE, HEADER
from twinlog.store.lock import has_abort_marker, is_locked
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import SEGMENT_NAME, segment_size_of
from twinlog.store.queues.batch_consume_queue import BatchConsumeQueue
from twinlog.store.queues.consume_queue import FILL_SIZE, ConsumeQueue
from twinlog.store.recovery.checkpoint import Checkpoint, load_checkpoint

KINDS = {"consumequeue": ConsumeQueue, "batchconsumequeue": BatchConsumeQueue}
UNITS_PER_READ = 65536


class StoreFiles:
    """Read-only access to the files of a store."""

    def __init__(
        self,
        root: Path,
        *,
        commit_log_dirs: Sequence[Path] = (),
        index_slots: int = 5_000_000,
        index_entries: int = 20_000_000,
    ) -> None:
        self.root = root
        self.index_slots = index_slots
        self.index_entries = index_entries
        directories = list(commit_log_dirs) or [root / "commitlog"]
        segment_size = segment_size_of(directories)
        if segment_size is None:
            raise NotAStore(root)
        self.commit_log = CommitLog(directories, segment_size, writable=False)
        self.commit_log.load()

    @property
    def checkpoint(self) -> Checkpoint:
        return load_checkpoint(self.root / "checkpoint")

    @property
    def was_aborted(self) -> bool:
        """Whether the store is in use, or was when its broker died."""
        return has_abort_marker(self.root)

    @property
    def is_live(self) -> bool:
        """Whether a broker has the store open now."""
        return is_locked(self.root)

    def queues(self) -> Iterator[StoredQueue]:
        """Every queue on disk, by kind, topic and id."""
        return stored_queues(self.root)

    def index_files(self) -> Iterator[StoredIndexFile]:
        return stored_index_files(self.root, self.index_slots, self.index_entries)

    def close(self) -> None:
        self.commit_log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stored_index_files(root: Path, slots: int, entries: int) -> Iterator[StoredIndexFile]:
    """The index files of the store at `root`, oldest first."""
    base = root / "index"
    for path in sorted(base.iterdir()) if base.is_dir() else ():
        if path.name.isdigit() and path.stat().st_size:
            yield StoredIndexFile(path, slots, entries)


def stored_queues(root: Path) -> Iterator[StoredQueue]:
    """Every queue of the store at `root`, by kind, topic and id; its log is not read."""
    for kind in KINDS:
        base = root / kind
        for topic in sorted(base.iterdir()) if base.is_dir() else ():
            if not topic.is_dir():
                continue
            for place in sorted((one for one in topic.iterdir() if one.name.isdigit()), key=lambda p: int(p.name)):
                yield StoredQueue(kind, topic.name, int(place.name), place)


class StoredQueue:
    """The units of one queue, as they are on disk; what its broker still holds in memory is missing."""

    def __init__(self, kind: str, topic: str, queue_id: int, directory: Path) -> None:
        self.kind = kind
        self.topic = topic
        self.queue_id = queue_id
        self._dtype, self._good = KINDS[kind].UNIT_TYPE, KINDS[kind].good
        self._paths = sorted(_numbered(directory))
        self.has_ext = (directory.parents[2] / "consumequeue_ext" / topic / str(queue_id)).is_dir()

    @property
    def is_batch(self) -> bool:
        return self.kind == "batchconsumequeue"

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(number of the first unit, units) until the data ends; placeholders are part of it."""
        width = self._dtype.itemsize
        for path in self._paths:
            first = int(path.name) // width
            with path.open("rb") as file:
                while data := file.read(UNITS_PER_READ * width):
                    units: np.ndarray = np.frombuffer(data, self._dtype, len(data) // width)
                    bad = np.flatnonzero(~self._good(units))
                    units = units[: bad[0]] if len(bad) else units
                    if len(units):
                        yield first, units
                    if len(bad):
                        break
                    first += len(units)

    def pointing_into(self, begin: int, end: int) -> np.ndarray:
        """The units of records that start in [begin, end) of the log; files that cannot hold one are not read."""
        found = []
        places = [self._first_place(path) for path in self._paths]
        for number, path in enumerate(self._paths):
            if places[number] >= end:
                break
            if number + 1 < len(places) and 0 < places[number + 1] <= begin:
                continue
            units: np.ndarray = np.fromfile(path, self._dtype)
            at, size = units["physical_offset"], units["size"]
            found.append(units[(at >= begin) & (at < end) & (size > 0) & (size != FILL_SIZE)])
        return np.concatenate(found) if found else np.empty(0, self._dtype)

    def _first_place(self, path: Path) -> int:
        """Where the first record of a file is in the log; 0 when nothing is there, or a placeholder."""
        units: np.ndarray = np.fromfile(path, self._dtype, 1)
        return int(units["physical_offset"][0]) if len(units) else 0

    def ends(self) -> tuple[int, int]:
        """(first, next) queue offset."""
        low = high = 0
        seen = False
        for first, units in self.chunks():
            real = np.flatnonzero(units["size"] != FILL_SIZE)
            if self.is_batch:
                high = int(units["base_offset"][-1] + units["batch_size"][-1])
                low = low if seen else int(units["base_offset"][0])
                seen = True
            else:
                high = first + len(units)
                if not seen:
                    low, seen = (first + int(real[0]), True) if len(real) else (high, False)
        return low, high


class StoredIndexFile:
    """Header and entries of one index file."""

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.path = path
        with path.open("rb") as file:
            fields = HEADER.unpack(file.read(HEADER.size))
        self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical = fields[:4]
        self.slots_used, self.count = fields[4:]
        self.has_expected_size = path.stat().st_size == HEADER.size + 4 * slots + ENTRY_TYPE.itemsize * entries
        self._entries_at = HEADER.size + 4 * slots
        self.slot_count = slots

    def slots(self) -> np.ndarray:
        """The newest entry of each slot."""
        with self.path.open("rb") as file:
            file.seek(HEADER.size)
            return np.frombuffer(file.read(4 * self.slot_count), ">i4").astype(np.int64)

    def chunks(self) -> Iterator[np.ndarray]:
        """The entries in log order; entry 0 does not exist."""
        left = self.count - 1
        with self.path.open("rb") as file:
            file.seek(self._entries_at + ENTRY_TYPE.itemsize)
            while left > 0:
                data = file.read(min(left, UNITS_PER_READ) * ENTRY_TYPE.itemsize)
                if not data:
                    return
                yield np.frombuffer(data, ENTRY_TYPE, len(data) // ENTRY_TYPE.itemsize)
                left -= UNITS_PER_READ


def _numbered(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if SEGMENT_NAME.match(path.name)]
