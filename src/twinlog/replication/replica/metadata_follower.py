"""Applies a Twinlog master's changes of one kind of metadata; `metadata/delta.py` has the format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.table import Changes
from twinlog.replication.metadata.delta import Delta, Held
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, KIND_BY_NAME, OFFSETS
from twinlog.wire.errors import BodyError


@dataclass(slots=True)
class Follower:
    """Applies the pages of one kind. Invariant: readers see the table before or after a page, a whole table at once.

    Where only the master may write (topics, groups, modes), a row that was changed here otherwise is a stray. Usually
    the next round brings the master's row for it: clients create a group on both brokers. If a stray is still there
    after a round, the whole table is requested, and the stray goes.
    """

    kind: str
    held: Held = field(default_factory=Held)
    _gathered: dict[str, Any] = field(default_factory=dict[str, Any])
    _strays: set[str] = field(default_factory=set[str])
    _own_revision: int | None = None  # of the table here, after the last page

    def begin_round(self, table: PersistedTable) -> None:
        """Find rows that were changed here since the last page; request the whole table if old ones are left."""
        if self._strays and not self.held.whole:
            self.forget()
        self._find_strays(table)

    def take(self, delta: Delta, table: PersistedTable) -> bool:
        """Follow the master by one page; whether this replica's table changed. An error leaves everything as it was."""
        rows = {key: _decode_row(self.kind, key, raw) for key, raw in delta.changed.items()}
        self._find_strays(table)
        changed = self._take_whole(rows, delta, table) if delta.whole else self._take_part(rows, delta, table)
        self.held = Held(delta.epoch, delta.revision, whole=delta.whole and delta.more)
        self._own_revision = table.revision
        return changed

    def forget(self) -> None:
        """Start over: the next answer brings the whole table."""
        self.held, self._gathered, self._strays, self._own_revision = Held(), {}, set(), None

    def _take_whole(self, rows: dict[str, Any], delta: Delta, table: PersistedTable) -> bool:
        if not self.held.whole or self.held.epoch != delta.epoch:
            self._gathered = {}
        self._gathered.update(rows)
        for key in delta.removed:
            self._gathered.pop(key, None)
        if delta.more:
            return False
        changed = self._adopt(table, self._gathered, delta)
        self._gathered, self._strays = {}, set()
        return changed

    def _take_part(self, rows: dict[str, Any], delta: Delta, table: PersistedTable) -> bool:
        changed = self._apply(table, rows, delta)
        self._strays -= rows.keys() | set(delta.removed)
        return changed

    def _find_strays(self, table: PersistedTable) -> None:
        before, self._own_revision = self._own_revision, table.revision
        if not KIND_BY_NAME[self.kind].only_master_writes or before is None or before == table.revision:
            return
        since = table.revisions.since(table.epoch, before)
        changed, removed = since or ([], [])
        self._strays.update(changed, removed)
        if not changed and not removed:
            self._strays.add("")  # a change that belongs to no row, or the list of changes is no longer complete

    def _adopt(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == DELAY_OFFSETS.name:
            return table.adopt(_by_level(rows), delta.data_version)
        if self.kind == OFFSETS.name:
            return table.adopt(rows, delta.data_version, master_epoch=delta.epoch)
        return table.adopt(rows, delta.data_version) | self._forbid(table, delta)

    def _apply(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == DELAY_OFFSETS.name:
            return table.adopt(_by_level(rows), delta.data_version)
        changes = Changes(delta.data_version, rows, delta.removed)
        return table.apply(changes) | self._forbid(table, delta)

    def _forbid(self, table: Any, delta: Delta) -> bool:
        return delta.forbidden is not None and self.kind == GROUPS.name and table.adopt_forbidden(delta.forbidden)


def _decode_row(kind: str, key: str, raw: msgspec.Raw) -> Any:
    try:
        row = msgspec.json.decode(raw, type=KIND_BY_NAME[kind].row_type, strict=False)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"{kind} row {key!r} from the master is not readable: {error}") from error
    name = KIND_BY_NAME[kind].name_member
    if name is not None and getattr(row, name) != key:
        raise BodyError(f"{kind} row {key!r} from the master has the name {getattr(row, name)!r}")
    return row


def _by_level(rows: dict[str, Any]) -> dict[int, int]:
    try:
        return {int(level): offset for level, offset in rows.items()}
    except ValueError as error:
        raise BodyError(f"the master's delay offsets have a level that is not a number: {error}") from error
