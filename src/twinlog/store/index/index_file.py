"""One file of the hash index: from the hash of `topic#key` to records of the log.

    0                 8               16                       24                     32           36
    | begin timestamp | end timestamp | begin physical offset  | end physical offset  | slots used | next entry |
    40: slots, 4 bytes each: the newest entry of the slot, 0 for none
    40 + 4·slots: entries of 20 bytes, entry 0 unused
        | key hash 4 | physical offset 8 | seconds since begin 4 | previous entry of the slot 4 |

The file has its full size at once and owns only the blocks that were written. Entries and header are written
with each batch; the slot table of a file that grows is kept in memory, and only its changed blocks are
written, by `write_slots`. After a crash it is computed again from the entries.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from twinlog.store.errors import OnDisk
from twinlog.store.file_pool import FilePool

HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
ENTRY_TYPE = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_BLOCK_SLOTS = 1024
_WINDOW_ENTRIES = 256
_STEPS_IN_MEMORY_MAX = 64  # entries with one key, or with keys that share its slot, may be millions
_CHUNK_ENTRIES = 1 << 20
_SECONDS_MAX = 0x7FFFFFFF
Read = Callable[[str, int, int], bytes]
"""of the file at this path: so many bytes, from here on"""


class IndexFile:
    """A row of entries, chained by slot. Entries are in log order, so their physical offsets never fall."""

    def __init__(self, files: FilePool, path: str, slot_count: int, entry_max: int) -> None:
        self.path = path
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_physical = self.end_physical = 0
        self.slots_used = 0
        self.count = 1  # the number of the next entry
        self._files = files
        self._slot_count = slot_count
        self._entry_max = entry_max
        self._slots: np.ndarray | None = None
        self._dirty_blocks = np.zeros(0, bool)
        self._header_behind = False  # its last write failed

    @classmethod
    def create(
        cls, files: FilePool, path: str, slot_count: int, entry_max: int, *, after: IndexFile | None
    ) -> IndexFile:
        """A new file; until its first entry it repeats where the file before it ended, as in Java."""
        file = cls(files, path, slot_count, entry_max)
        if after is not None:
            file.begin_timestamp = file.end_timestamp = after.end_timestamp
            file.begin_physical = file.end_physical = after.end_physical
        file._slots = np.zeros(slot_count, ">i4")  # untouched pages of zeros cost no memory
        file._dirty_blocks = np.zeros(-(-slot_count // _BLOCK_SLOTS), bool)
        file._write_header()
        return file

    @classmethod
    def open(cls, files: FilePool, path: str, slot_count: int, entry_max: int) -> IndexFile:
        """An existing file, as its header describes it."""
        file = cls(files, path, slot_count, entry_max)
        fields = HEADER.unpack(files.read(path, HEADER.size, 0))
        file.begin_timestamp, file.end_timestamp, file.begin_physical, file.end_physical = fields[:4]
        file.slots_used, file.count = fields[4], min(max(1, fields[5]), entry_max)
        return file

    @property
    def file_bytes(self) -> int:
        return HEADER.size + 4 * self._slot_count + ENTRY_TYPE.itemsize * self._entry_max

    @property
    def room(self) -> int:
        """How many entries still fit; entry 0 counts as used."""
        return self._entry_max - self.count

    def append(self, hashes: np.ndarray, physical_offsets: np.ndarray, timestamps: np.ndarray) -> None:
        """Add one entry for each key hash; there must be room for all of them."""
        number = len(hashes)
        assert 0 < number <= self.room, (number, self.room)
        slots = self._load_slots()
        entries = np.empty(number, ENTRY_TYPE)
        entries["key_hash"] = hashes
        entries["physical_offset"] = physical_offsets
        entries["seconds"] = self._seconds(timestamps)
        entries["previous"] = self._chain(slots, hashes % self._slot_count, self.count)
        at = HEADER.size + 4 * self._slot_count + ENTRY_TYPE.itemsize * self.count
        try:
            self._files.write(self.path, entries.tobytes(), at, self.file_bytes)
        except OSError:
            self._rebuild_slots(self.count)  # forget entries that are not there
            raise
        if self.count <= 1:
            self.begin_physical, self.begin_timestamp = int(physical_offsets[0]), int(timestamps[0])
        self.count += number
        self.end_physical, self.end_timestamp = int(physical_offsets[-1]), int(timestamps[-1])
        self._write_header()

    def write_slots(self) -> None:
        """Write the changed blocks of the slot table: a reader of the file then finds every entry."""
        if self._header_behind:
            self._write_header()
        if self._slots is None or not self._dirty_blocks.any():
            return
        edges = np.flatnonzero(np.diff(np.concatenate(([False], self._dirty_blocks, [False])).astype(np.int8)))
        view = self._slots.data.cast("B")
        for first, last in zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True):
            start, end = first * _BLOCK_SLOTS * 4, min(last * _BLOCK_SLOTS, self._slot_count) * 4
            self._files.write(self.path, view[start:end], HEADER.size + start, self.file_bytes)
        self._dirty_blocks[:] = False

    def release_slots(self) -> None:
        """Write the slot table and forget it: the file is full."""
        self.write_slots()
        self._slots = None

    def find(
        self, key_hash: int, count_max: int, begin_ms: int, end_ms: int, found: list[int], *, in_memory: bool = False
    ) -> None:
        """Add the physical offsets of matching entries to `found`, newest first, until it has `count_max`.

        Entries hold their time in whole seconds, so one up to a second before `begin_ms` may be among them. With
        `in_memory` it raises OnDisk instead of waiting for the disk, or walking far.
        """
        read = self._files.read_in_memory if in_memory else self._files.read
        steps = _STEPS_IN_MEMORY_MAX if in_memory else self.count
        number = self._newest(key_hash % self._slot_count, read)
        base, window = 0, b""
        while 0 < number < self.count and len(found) < count_max:
            steps -= 1
            if steps < 0:
                raise OnDisk
            if not base <= number < base + len(window) // _ENTRY.size:
                base = max(1, number - _WINDOW_ENTRIES + 1)  # chains lead back, so read what lies before
                window = self._read_entries(base, number - base + 1, read)
                if len(window) < (number - base + 1) * _ENTRY.size:
                    return
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack_from(window, (number - base) * _ENTRY.size)
            time_ms = self.begin_timestamp + seconds * 1000
            if seconds < 0 or time_ms + 999 < begin_ms:
                return
            if entry_hash == key_hash and time_ms <= end_ms:
                found.append(physical_offset)
            if previous >= number:  # a chain never leads forward
                return
            number = previous

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.count > 1 and begin_ms <= self.end_timestamp + 999 and end_ms >= self.begin_timestamp

    def entries(self, start: int, count: int) -> np.ndarray:
        """Entries as an array; fewer when the file is shorter."""
        data = self._read_entries(start, min(count, self.count - start))
        return np.frombuffer(data, ENTRY_TYPE, len(data) // ENTRY_TYPE.itemsize)

    def physical_offset(self, number: int) -> int:
        return _ENTRY.unpack(self._read_entries(number, 1))[1]

    def repair(self) -> None:
        """After a crash: end the file at its last valid entry, and compute the slots again."""
        good, newest = 1, self.begin_physical
        while good < self.count:
            entries = self.entries(good, _CHUNK_ENTRIES)
            offsets = entries["physical_offset"].astype(np.int64)
            steps = np.diff(offsets, prepend=newest)
            bad = np.flatnonzero((steps < 0) | (entries["seconds"] < 0) | (entries["previous"] >= self.count))
            good += int(bad[0]) if len(bad) else len(offsets)
            if len(bad) or not len(offsets):
                break
            newest = int(offsets[-1])
        self._end_at(good)

    def truncate_after(self, log_end: int) -> None:
        """Remove the entries of records at or beyond `log_end`."""
        if self.end_physical >= log_end:
            self._end_at(bisect_left(range(self.count), log_end, lo=1, key=self.physical_offset))

    def _end_at(self, count: int) -> None:
        if count < self.count:
            self.count = count
            if count > 1:
                _, self.end_physical, seconds, _ = _ENTRY.unpack(self._read_entries(count - 1, 1))
                self.end_timestamp = self.begin_timestamp + seconds * 1000 + 999
            else:
                self.end_physical = self.begin_physical
        self._rebuild_slots(count)
        self.write_slots()
        self._write_header()

    def _chain(self, slots: np.ndarray, slot_of: np.ndarray, first_number: int) -> np.ndarray:
        """Enter new entries into their slots; returns the entry before each of them in its slot."""
        number = len(slot_of)
        keys = np.sort(slot_of.astype(np.uint64) << np.uint64(32) | np.arange(number, dtype=np.uint64))
        order, ordered = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64), (keys >> np.uint64(32)).astype(np.int64)
        starts = np.ones(number, bool)
        np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
        ends = np.append(starts[1:], True)
        old = slots[ordered[starts]].astype(np.int64)
        old[(old < 0) | (old > first_number)] = 0
        before = np.empty(number, np.int64)
        before[1:] = first_number + order[:-1]
        before[starts] = old
        self.slots_used += int(np.count_nonzero(old == 0))
        changed = ordered[ends]
        slots[changed] = first_number + order[ends]
        self._dirty_blocks[changed // _BLOCK_SLOTS] = True
        previous = np.empty(number, np.int64)
        previous[order] = before
        return previous

    def _seconds(self, timestamps: np.ndarray) -> np.ndarray:
        begin = int(timestamps[0]) if self.count <= 1 else self.begin_timestamp
        seconds = (timestamps - begin) // 1000
        if self.count <= 1 and self.begin_timestamp > 0:  # Java: the first entry still counts from the file before
            seconds[0] = (int(timestamps[0]) - self.begin_timestamp) // 1000
        return np.clip(seconds, 0, _SECONDS_MAX) if begin > 0 else np.zeros(len(timestamps), np.int64)

    def _newest(self, slot: int, read: Read) -> int:
        if self._slots is not None:
            return int(self._slots[slot])
        data = read(self.path, 4, HEADER.size + 4 * slot)
        return _SLOT.unpack(data)[0] if len(data) == 4 else 0

    def _load_slots(self) -> np.ndarray:
        if self._slots is None:
            self._slots = np.zeros(self._slot_count, ">i4")
            self._files.read_written(self.path, self._slots.data.cast("B"), HEADER.size)
            self._dirty_blocks = np.zeros(-(-self._slot_count // _BLOCK_SLOTS), bool)
        return self._slots

    def _rebuild_slots(self, count: int) -> None:
        """Compute the slot table from the entries below `count`; blocks that differ from the file are dirty."""
        slots = np.zeros(self._slot_count, ">i4")
        for start in range(1, count, _CHUNK_ENTRIES):
            entries = self.entries(start, min(_CHUNK_ENTRIES, count - start))
            slot_of = entries["key_hash"].astype(np.int64) % self._slot_count
            slots[slot_of] = np.arange(start, start + len(entries))  # of equal slots the last one wins
        self._slots = None
        changed = np.flatnonzero(self._load_slots() != slots)
        self._dirty_blocks[changed // _BLOCK_SLOTS] = True
        self._slots = slots
        self.slots_used = int(np.count_nonzero(slots))

    def _read_entries(self, start: int, count: int, read: Read | None = None) -> bytes:
        at = HEADER.size + 4 * self._slot_count + ENTRY_TYPE.itemsize * start
        return (read or self._files.read)(self.path, ENTRY_TYPE.itemsize * count, at)

    def _write_header(self) -> None:
        self._header_behind = True
        data = HEADER.pack(
            self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
            self.slots_used, self.count,
        )  # fmt: skip
        self._files.write(self.path, data, 0, self.file_bytes)
        self._header_behind = False
