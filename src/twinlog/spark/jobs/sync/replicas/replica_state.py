"""The synchronisation's own files in a replica directory: `<root>/twinlog-sync/`.

    state.json          how far the log is durable, which revisions are held, ranges not yet in the table of ranges
    <20 digits>.json    one entry of the journal: differences that one tick found, written before they are applied

An entry is a redo log. The tables are saved after it, and the state after them. An entry after `adopted` shows that a
tick was interrupted in between: it is applied again, which gives the same tables. So each difference is in the journal
exactly once, whenever a process is killed, and reaches the history table by its number (see `history`).

Brokers, Java's too, ignore this folder.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.metadata.errors import MetadataError
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.wire.bodies import DataVersion

DIRECTORY = "twinlog-sync"
_STATE_FILE = "state.json"
_CLOCKS_DIFFER_MS_MAX = 3_600_000


class RangeDigest(msgspec.Struct, frozen=True):
    """Bytes of the log that became durable together; the ranges of a replica follow each other without a gap."""

    sequence: int
    begin: int
    end: int
    crc32: int
    records: int
    source: str  # ha, or store
    milliseconds: int
    copied_ms: int  # when


class Change(msgspec.Struct, frozen=True):
    """One difference; values are JSON, and None stands for no row."""

    kind: str
    key: str
    old: str | None
    new: str | None
    version: DataVersion


class JournalEntry(msgspec.Struct, frozen=True):
    """All differences of one tick."""

    sequence: int
    seen_ms: int
    changes: list[Change]


class MasterConf(msgspec.Struct, frozen=True):
    """What a replica needs from its master's configuration; read again if the address changes or a tick fails."""

    address: str
    cluster: str
    broker: str
    ha_address: str
    segment_bytes: int | None
    ha_tls: bool = False  # the HA port takes TLS
    ha_tls_required: bool = False
    queue_file_bytes: int | None = None


class ReplicaState(msgspec.Struct):
    """Invariant: all bytes before `end` are durable and whole records; `end` grows only after a successful fsync."""

    replica: str  # identity: numbers of another directory at this path are not mixed with these
    end: int = 0
    last_record: int = -1
    known_damage: int = -1
    ranges: list[RangeDigest] = []
    range_sequence: int = 0
    adopted: int = 0  # the last entry of the journal that is in the tables
    seen_ms: int = 0  # when that entry was made
    held: dict[str, str] = {}  # kind -> revision of the master's table
    stamps: dict[str, tuple[int, int]] = {}  # times and sizes of the config files when `held` was valid
    versions: dict[str, DataVersion] = {}  # of the tables, by kind
    verified: str = ""  # the epoch of the master in which both logs were compared
    master: MasterConf | None = None


class SyncFolder:
    """Reads and writes these files; each is replaced in one step."""

    def __init__(self, root: Path, modes: Modes = PRIVATE) -> None:
        self.path = root / DIRECTORY
        self._modes = modes
        self._state = FileWithBackup(self.path / _STATE_FILE, modes)

    def load(self) -> ReplicaState:
        """The state; a new one for a new replica."""
        found = self._state.load(lambda data: msgspec.json.decode(data, type=ReplicaState))
        return found or ReplicaState(new_identity())

    def save(self, state: ReplicaState) -> None:
        self._state.save([msgspec.json.encode(state)])

    def sequences(self) -> list[int]:
        """The numbers of the entries on disk, in order."""
        if not self.path.is_dir():
            return []
        return sorted(int(one.stem) for one in self.path.glob("*.json") if one.stem.isdigit())

    def entry(self, sequence: int) -> JournalEntry:
        path = self._entry_path(sequence)
        try:
            return msgspec.json.decode(path.read_bytes(), type=JournalEntry)
        except msgspec.DecodeError as error:
            raise MetadataError(f"{path} is not a journal entry ({error}): restore it, or move it away") from error

    def write(self, entry: JournalEntry) -> None:
        FileWithBackup(self._entry_path(entry.sequence), self._modes).save([msgspec.json.encode(entry)])

    def forget_entries(self, up_to: int) -> None:
        """Remove entries that are in the history table."""
        for sequence in self.sequences():
            if sequence <= up_to:
                self._entry_path(sequence).unlink(missing_ok=True)

    def _entry_path(self, sequence: int) -> Path:
        return self.path / f"{sequence:020d}.json"


def seen_after(before_ms: int, now_ms: int) -> int:
    """When a difference is seen, after another one: questions to the history order them by time, so that workers whose
    clocks differ a little must not exchange two of them. A clock that was far ahead is not believed any longer."""
    return before_ms if now_ms < before_ms <= now_ms + _CLOCKS_DIFFER_MS_MAX else now_ms


def new_identity() -> str:
    return secrets.token_hex(8)


def encode_value(value: Any) -> str:
    return msgspec.json.encode(value).decode()
