"""Rows by name, each an immutable value: topics, and subscription groups.

A replica may adopt its master's whole table while others read: the new rows are built beside the old ones and replace
them in one assignment, so no reader sees an empty or half-filled table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from twinlog.metadata import persisted
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.persisted import PersistedTable, encode_blocks
from twinlog.wire.bodies import DataVersion

V = TypeVar("V")
C = TypeVar("C", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Changes(Generic[V]):
    """What changed in a master's table since an older revision; `version` is the table's after the changes."""

    version: DataVersion
    changed: dict[str, V]
    removed: list[str]


@dataclass(frozen=True, slots=True)
class Encoded(Generic[V]):
    """What a save has made of a table's rows; rows are never changed in place, so it holds until one is replaced."""

    revision: int
    count: int  # of rows
    full: tuple[bytes, ...]  # blocks of `CHUNK_ROWS` rows, each with the brace or comma before it
    rest: dict[str, V]  # the rows of the last block, if that is not full


class Table(PersistedTable, Generic[V]):
    """Named rows under one data version."""

    def __init__(self, file: FileWithBackup | None, now_ms: int, epoch: str | None = None) -> None:
        super().__init__(file, now_ms, epoch)
        self._rows: dict[str, V] = {}
        self._sorted: tuple[int, list[str]] = (0, [])  # (revision it was made at, names)
        self._encoded: Encoded[V] = Encoded(-1, 0, (), {})  # by the last save

    @property
    def rows(self) -> Mapping[str, V]:
        """The rows as they are now; read this property again after every await."""
        return self._rows

    def get(self, name: str) -> V | None:
        return self._rows.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def seed(self, name: str, row: V) -> None:
        """Add a row that every broker has from the start: no new version, and a row from the file wins."""
        if name not in self._rows:
            self._rows[name] = row
            self.revisions.touch(name)
            self.changed()

    def put(self, name: str, row: V, now_ms: int) -> bool:
        """Add or replace one row; False, and no new version, when it is there already."""
        return self.put_all({name: row}, now_ms)

    def put_all(self, rows: Mapping[str, V], now_ms: int) -> bool:
        fresh = {name: row for name, row in rows.items() if self._rows.get(name) != row}
        if not fresh:
            return False
        self._rows.update(fresh)
        self.revisions.touch_all(fresh)
        self.advance(now_ms)
        return True

    def remove(self, name: str, now_ms: int) -> V | None:
        """Remove and return one row; None when there was none."""
        row = self._rows.pop(name, None)
        if row is not None:
            self.revisions.remove(name)
            self.advance(now_ms)
        return row

    def advance(self, now_ms: int) -> None:
        """A new version, since something changed that replicas and name servers must get."""
        self.version = self.version.next(now_ms, self.version.state_version)
        self.changed()

    def take_epoch(self, epoch: int, now_ms: int) -> None:
        """A new version of a new master: name servers prefer the higher epoch of two masters of one name."""
        self.version = self.version.next(now_ms, epoch)
        self.changed()

    def adopt(self, rows: Mapping[str, V], version: DataVersion) -> bool:
        """Become equal to the master's table and its version; False when nothing changed."""
        old = self._rows
        fresh = [name for name, row in rows.items() if old.get(name) != row]
        gone = [name for name in old if name not in rows]
        if not fresh and not gone and version == self.version:
            return False
        if fresh or gone:
            self._rows = dict(rows)
        self.version = version
        self._count_changes(fresh, gone)
        return True

    def apply(self, changes: Changes[V]) -> bool:
        """Apply a difference that the master sent; False when nothing changed here."""
        fresh = [name for name, row in changes.changed.items() if self._rows.get(name) != row]
        gone = [name for name in changes.removed if name in self._rows]
        if not fresh and not gone and changes.version == self.version:
            return False
        for name in fresh:
            self._rows[name] = changes.changed[name]
        for name in gone:
            del self._rows[name]
        self.version = changes.version
        self._count_changes(fresh, gone)
        return True

    def page(self, start: int, count: int) -> dict[str, V]:
        """Rows [start, start + count) in the order of their names."""
        rows = self._rows
        return {name: rows[name] for name in self.sorted_names()[max(start, 0) : max(start, 0) + max(count, 0)]}

    def sorted_names(self) -> list[str]:
        """All names in order; sorted once per revision, not once per page."""
        revision, names = self._sorted
        if revision != self.revision:
            names = sorted(self._rows)
            self._sorted = (self.revision, names)
        return names

    def encode_rows(self) -> Iterator[bytes]:
        """The rows of now as a JSON object, in chunks; rows that were added since the last save are encoded alone.

        A broker with thousands of topics saves them all for each one that is created.
        """
        before, now = self._encoded, (self.revision, len(self._rows))
        since = self.revisions.since(self.epoch, before.revision)
        # If no row is gone, and there are as many more as have changed, then those are the new ones.
        if since is not None and not since[1] and now[1] == before.count + len(since[0]):
            return self._encode(before.full, before.rest | {name: self._rows[name] for name in since[0]}, *now)
        return self._encode((), dict(self._rows), *now)

    def _encode(self, full: tuple[bytes, ...], others: dict[str, V], revision: int, count: int) -> Iterator[bytes]:
        yield from full
        made, rest = list(full), dict[str, V]()
        for rows, members in encode_blocks(others):
            block = (b"," if made else b"{") + members
            yield block
            if len(rows) == persisted.CHUNK_ROWS:
                made.append(block)
            else:
                rest = rows
        self._encoded = Encoded(revision, count, tuple(made), rest)
        yield b"}" if count else b"{}"

    def restore_rows(self, rows: Mapping[str, V], version: DataVersion | None) -> None:
        """Put the file's rows over the seeded ones; the table is clean if the file has all rows."""
        beside_file = any(name not in rows for name in self._rows)
        self._rows = {**self._rows, **rows}
        if version is not None:
            self.version = version
        self.revisions.touch_all(rows)
        self._edition += 1
        if not beside_file:
            self._saved_edition = self._edition

    def _count_changes(self, fresh: Iterable[str], gone: Iterable[str]) -> None:
        self.revisions.touch_all(fresh)
        for name in gone:
            self.revisions.remove(name)
        self.changed()


def named_rows(rows: Mapping[str, C], name_member: str) -> dict[str, C]:
    """The rows, with the key of each also in its own name: the key is the name that counts."""
    return {
        name: row if getattr(row, name_member) == name else msgspec.structs.replace(row, **{name_member: name})
        for name, row in rows.items()
    }
