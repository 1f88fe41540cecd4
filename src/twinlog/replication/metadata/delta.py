"""Only what changed: how a Twinlog replica asks its Twinlog master for metadata.

The replica says for each kind which revision of which epoch (life of the master's process) it holds. The
master answers with the rows that changed since, in pages, and with nothing at all for a kind that did not
change. A replica from another epoch is given every row, and adopts them together when the last page is in.

    request fields:  topics="epoch:revision", groups="...", ...     ("epoch:revision:whole" amid a whole table)
    answer body:     {"topics": {epoch, revision, whole, more, dataVersion, changed, removed}, ...} or none
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from twinlog.metadata.groups import GroupTable
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.table import Changes
from twinlog.metadata.tables import MetadataTables
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, KIND_BY_NAME, OFFSETS, table_of
from twinlog.wire.bodies import DataVersion
from twinlog.wire.errors import BodyError
from twinlog.wire.numbers import Int, Long, is_natural

ROWS_MAX = 10_000  # of one page, over all kinds: about 2 MiB of topics
PAGE_BYTES_MAX = 3 * 1024 * 1024  # of one kind, so that five kinds fit a frame: a row of offsets may have many queues
_EPOCH_LENGTH_MAX = 64


class Delta(msgspec.Struct, rename="camel", omit_defaults=True):
    """One page of one kind."""

    epoch: str
    revision: Long
    data_version: DataVersion
    whole: bool = False
    more: bool = False
    changed: dict[str, msgspec.Raw] = {}
    removed: list[str] = []
    forbidden: dict[str, dict[str, Int]] | None = None  # groups only, and only when it changed


@dataclass(frozen=True, slots=True)
class Held:
    """What a replica holds of one kind."""

    epoch: str = ""
    revision: int = 0
    whole: bool = False  # amid taking over the whole table

    def __str__(self) -> str:
        return f"{self.epoch}:{self.revision}" + (":whole" if self.whole else "")


def parse_held(text: str) -> Held:
    epoch, _, rest = text.partition(":")
    revision, _, whole = rest.partition(":")
    if not is_natural(revision):
        raise BodyError(f"{text!r} does not say which revision is held; write epoch:revision")
    return Held(epoch, int(revision), whole == "whole")


# -- the master's side -------------------------------------------------------------------------------


def encode_changes(tables: MetadataTables, held: dict[str, str], rows_max: int = ROWS_MAX) -> bytes | None:
    """The answer to a replica that holds `held`; None when nothing changed."""
    deltas: dict[str, Delta] = {}
    for kind, text in held.items():
        if kind not in KIND_BY_NAME:
            continue
        delta = _delta(table_of(tables, kind), parse_held(text), max(rows_max, 1))
        if delta is not None:
            deltas[kind] = delta
            rows_max -= len(delta.changed) + len(delta.removed)
    return msgspec.json.encode(deltas) if deltas else None


def _delta(table: PersistedTable, held: Held, rows_max: int) -> Delta | None:
    revisions = table.revisions
    if held.epoch == table.epoch and held.revision == revisions.current and not held.whole:
        return None
    resumed = held.whole and held.epoch == table.epoch
    whole = resumed or not revisions.knows(held.epoch, held.revision)
    since = held.revision if not whole or resumed else 0
    rows, removed, reached = _page(table, since, rows_max)
    forbidden = None
    if isinstance(table, GroupTable):
        forbidden = table.forbidden_since("" if whole else held.epoch, since)
    return Delta(
        epoch=table.epoch,
        revision=reached,
        data_version=table.version,
        whole=whole,
        more=reached < revisions.current,
        changed=rows,
        removed=removed if not whole or resumed else [],  # a page before this one may have brought the row
        forbidden=forbidden,
    )


def _page(table: PersistedTable, since: int, rows_max: int) -> tuple[dict[str, msgspec.Raw], list[str], int]:
    """(encoded rows, removed keys, revision they reach): as many as fit a page."""
    while True:
        changed, removed, reached = table.revisions.page(since, rows_max)
        rows: Any = table.rows  # type: ignore[attr-defined]
        encoded = {key: msgspec.Raw(msgspec.json.encode(_row(rows, key))) for key in changed}
        size = sum(len(key) + memoryview(row).nbytes for key, row in encoded.items())
        if size <= PAGE_BYTES_MAX or len(changed) + len(removed) < 2:
            return encoded, removed, reached
        rows_max = (len(changed) + len(removed)) // 2


def _row(rows: Any, key: str) -> Any:
    return rows[key] if key in rows else rows[int(key)]  # delay levels are numbered


# -- the replica's side ------------------------------------------------------------------------------


@dataclass(slots=True)
class Follower:
    """Applies one kind's pages. Invariant: readers see the table before or after a page, a whole table at once.

    Where only the master may write (topics, groups, modes), a row that was changed here by somebody else is a stray. A
    round usually brings the master's row for it, as clients tell both brokers of a new group. If one does not, the
    whole table is asked for, and the stray goes.
    """

    kind: str
    held: Held = field(default_factory=Held)
    _gathered: dict[str, Any] = field(default_factory=dict)
    _strays: set[str] = field(default_factory=set)
    _own_revision: int | None = None  # of the table here, after the last page

    def begin_round(self, table: PersistedTable) -> None:
        """Look for rows that were changed here since the last page; those that outlived a round are one too many."""
        if self._strays and not self.held.whole:
            self.forget()
        self._look_for_strays(table)

    def take(self, delta: Delta, table: PersistedTable) -> bool:
        """Follow the master by one page; whether this replica's table changed. An error leaves everything as it was."""
        rows = {key: _decode_row(self.kind, key, raw) for key, raw in delta.changed.items()}
        self._look_for_strays(table)
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

    def _look_for_strays(self, table: PersistedTable) -> None:
        before, self._own_revision = self._own_revision, table.revision
        if not KIND_BY_NAME[self.kind].only_master_writes or before is None or before == table.revision:
            return
        since = table.revisions.since(table.epoch, before)
        changed, removed = since or ([], [])
        self._strays.update(changed, removed)
        if not changed and not removed:
            self._strays.add("")  # something that belongs to no row, or too much to tell

    def _adopt(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == DELAY_OFFSETS.name:
            return table.adopt(_by_level(rows), delta.data_version)
        if self.kind == OFFSETS.name:
            return table.adopt(rows, delta.data_version, master_life=delta.epoch)
        return table.adopt(rows, delta.data_version) | self._forbid(table, delta)

    def _apply(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == DELAY_OFFSETS.name:
            return table.adopt(_by_level(rows), delta.data_version)
        changes = Changes(delta.epoch, delta.revision, delta.data_version, rows, delta.removed)
        return table.apply(changes) | self._forbid(table, delta)

    def _forbid(self, table: Any, delta: Delta) -> bool:
        return delta.forbidden is not None and self.kind == GROUPS.name and table.adopt_forbidden(delta.forbidden)


def decode_changes(body: bytes | None) -> dict[str, msgspec.Raw]:
    """The deltas in an answer by kind, each for `decode_delta`; an empty body says that nothing changed."""
    if not body:
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's changes are not readable: {error}") from error


def decode_delta(kind: str, raw: msgspec.Raw) -> Delta:
    """One page; BodyError also for a revision that the master would not take back, or nothing could follow it."""
    try:
        delta = msgspec.json.decode(raw, type=Delta)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's changes of {kind} are not readable: {error}") from error
    held = Held(delta.epoch, delta.revision)
    if len(delta.epoch) > _EPOCH_LENGTH_MAX or parse_held(str(held)) != held:
        raise BodyError(f"the master's changes of {kind} are of epoch {delta.epoch[:_EPOCH_LENGTH_MAX]!r}: not one")
    return delta


def _decode_row(kind: str, key: str, raw: msgspec.Raw) -> Any:
    try:
        row = msgspec.json.decode(raw, type=KIND_BY_NAME[kind].row_type, strict=False)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"{kind} row {key!r} from the master is not readable: {error}") from error
    name = KIND_BY_NAME[kind].name_member
    if name is not None and getattr(row, name) != key:
        raise BodyError(f"{kind} row {key!r} from the master is one of {getattr(row, name)!r}")
    return row


def _by_level(rows: dict[str, Any]) -> dict[int, int]:
    try:
        return {int(level): offset for level, offset in rows.items()}
    except ValueError as error:
        raise BodyError(f"the master's delay offsets have a level that is no number: {error}") from error
