"""What every metadata table shares: a version, revisions, and a file that is written only when needed.

A save has two parts. `begin_save` runs in the thread that changes the table and costs one shallow copy; `write`
encodes and syncs, in any thread, and may be slow. Changes made meanwhile leave the table dirty.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.revisions import Revisions
from twinlog.wire.bodies import DataVersion

_ABSENT = b',"subscriptionDataSet":null'  # Java leaves absent members out; no string can hold these bytes
CHUNK_ROWS = 1_000  # rows encoded in one go: the interpreter lock is free between chunks


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A table as it was at `edition`; `write` puts it on disk unless something newer is there already."""

    table: PersistedTable
    edition: int
    chunks: Iterable[bytes]

    def write(self) -> None:
        self.table.write_pending(self)


class PersistedTable:
    """Version, revisions and dirtiness; subclasses hold the rows and know their JSON."""

    def __init__(self, file: FileWithBackup | None, now_ms: int, epoch: str | None = None) -> None:
        self.version: DataVersion = DataVersion(timestamp=now_ms)
        self.revisions = Revisions(epoch)
        self.on_change: list[Callable[[], None]] = []  # called after each change
        self.file = file
        self.saver: Callable[[PersistedTable], Awaitable[None]] | None = None  # set by SaveService
        self._edition = 0  # counts the changes that belong in the file, those of the version too
        self._saved_edition = 0
        self._write_lock = threading.Lock()

    @property
    def rows(self) -> Mapping[Any, Any]:
        """The rows as they are now, by the keys that revisions count as text."""
        raise NotImplementedError

    @property
    def file_name(self) -> str:
        return self.file.path.name if self.file is not None else ""

    @property
    def revision(self) -> int:
        return self.revisions.current

    @property
    def epoch(self) -> str:
        return self.revisions.epoch

    @property
    def dirty(self) -> bool:
        """Whether the file is older than the table; an unchanged table is never rewritten."""
        return self._edition != self._saved_edition

    def load(self) -> bool:
        """Load the file's content; False when there is none and the table starts from its defaults."""
        if self.file is None:
            return False
        loaded = self.file.load(self.decode_file)
        if loaded is None:
            return False
        self.restore(loaded)
        if self.file.from_backup or self.file.is_changed:
            self._edition += 1  # so that the next save replaces the broken main file, or a checksum that is not its own
        return True

    def begin_save(self) -> PendingSave | None:
        """The work that makes the table clean; None when it is clean, or has no file."""
        if self.file is None or not self.dirty:
            return None
        return PendingSave(self, self._edition, self.encode_file())

    def save(self) -> bool:
        """Write now, in this thread; whether there was anything to write."""
        pending = self.begin_save()
        if pending is not None:
            pending.write()
        return pending is not None

    async def saved(self) -> None:
        """Return once everything in the table by now is on disk; OSError when it cannot be written."""
        if self.saver is None:
            self.save()
        else:
            await self.saver(self)

    def write_pending(self, pending: PendingSave) -> None:
        assert self.file is not None
        with self._write_lock:
            if pending.edition > self._saved_edition:
                self.file.save(pending.chunks)
                self._saved_edition = pending.edition

    def is_saved(self, edition: int) -> bool:
        return self.file is None or edition <= self._saved_edition

    @property
    def edition(self) -> int:
        return self._edition

    def changed(self) -> None:
        """Count a change that belongs in the file, and call the listeners."""
        self._edition += 1
        for listener in self.on_change:
            listener()

    def decode_file(self, data: bytes) -> Any:
        """The file's content as `restore` wants it; raises ValueError for anything else."""
        raise NotImplementedError

    def restore(self, loaded: Any) -> None:
        raise NotImplementedError

    def adopt_loaded(self, loaded: Any) -> bool:
        raise NotImplementedError

    def encode_file(self) -> Iterable[bytes]:
        """The file's bytes. Takes its snapshot before the first chunk is asked for."""
        raise NotImplementedError


class SteppedTable(PersistedTable):
    """A table whose version changes once in `version_step` changes of rows, since rows change often."""

    def __init__(self, file: FileWithBackup | None, now_ms: int, epoch: str | None, version_step: int) -> None:
        super().__init__(file, now_ms, epoch)
        self._version_step = max(version_step, 1)
        self._row_changes = 0

    def _changed_row(self, key: str, now_ms: int) -> None:
        self.revisions.touch(key)
        self._row_changes += 1
        if self._row_changes % self._version_step == 0:
            self.version = self.version.next(now_ms)
        self.changed()


def encode_object(members: Iterable[tuple[str, bytes | Iterable[bytes]]]) -> Iterator[bytes]:
    """A JSON object from already encoded members, piece by piece."""
    opening = "{"
    for name, value in members:
        yield f'{opening}"{name}":'.encode()
        if isinstance(value, bytes):
            yield value
        else:
            yield from value
        opening = ","
    yield b"{}" if opening == "{" else b"}"


def encode_rows(rows: Mapping[str, Any]) -> Iterator[bytes]:
    """A JSON object with one member per row, in chunks; `rows` is the caller's own copy."""
    separator = b"{"
    for _, chunk in encode_blocks(rows):
        yield separator + chunk
        separator = b","
    yield b"{}" if separator == b"{" else b"}"


def encode_blocks(rows: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Up to `CHUNK_ROWS` rows at a time, and them as members of a JSON object."""
    encode, rest = msgspec.json.encode, iter(rows.items())
    while block := dict(islice(rest, CHUNK_ROWS)):
        # The encoder takes a block in one call, so no row is half old and half new.
        yield block, encode(block).replace(_ABSENT, b"")[1:-1]
