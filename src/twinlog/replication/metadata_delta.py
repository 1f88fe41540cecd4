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
from twinlog.wire.bodies import DataVersion, MessageRequestMode, SubscriptionGroupConfig, TopicConfig
from twinlog.wire.errors import BodyError

ROWS_MAX = 10_000  # of one page, over all kinds: about 2 MiB of topics
ROW_TYPES: dict[str, Any] = {
    "topics": TopicConfig,
    "offsets": dict[int, int],
    "delayOffsets": int,
    "groups": SubscriptionGroupConfig,
    "requestModes": dict[str, MessageRequestMode],
}


class Delta(msgspec.Struct, rename="camel", omit_defaults=True):
    """One page of one kind."""

    epoch: str
    revision: int
    data_version: DataVersion
    whole: bool = False
    more: bool = False
    changed: dict[str, msgspec.Raw] = {}
    removed: list[str] = []
    forbidden: dict[str, dict[str, int]] | None = None  # groups only, and only when it changed


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
    if not revision.isdigit():
        raise BodyError(f"{text!r} does not say which revision is held; write epoch:revision")
    return Held(epoch, int(revision), whole == "whole")


def table_of(tables: MetadataTables, kind: str) -> PersistedTable:
    return {
        "topics": tables.topics,
        "offsets": tables.offsets,
        "delayOffsets": tables.delay_offsets,
        "groups": tables.groups,
        "requestModes": tables.request_modes,
    }[kind]


# -- the master's side -------------------------------------------------------------------------------


def encode_changes(tables: MetadataTables, held: dict[str, str], rows_max: int = ROWS_MAX) -> bytes | None:
    """The answer to a replica that holds `held`; None when nothing changed."""
    deltas: dict[str, Delta] = {}
    for kind, text in held.items():
        if kind not in ROW_TYPES:
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
    changed, removed, reached = revisions.page(since, rows_max)
    rows: Any = table.rows  # type: ignore[attr-defined]
    forbidden = None
    if isinstance(table, GroupTable):
        forbidden = table.forbidden_since("" if whole else held.epoch, since)
    return Delta(
        epoch=table.epoch,
        revision=reached,
        data_version=table.version,
        whole=whole,
        more=reached < revisions.current,
        changed={key: msgspec.Raw(msgspec.json.encode(_row(rows, key))) for key in changed},
        removed=[] if whole else removed,
        forbidden=forbidden,
    )


def _row(rows: Any, key: str) -> Any:
    return rows[key] if key in rows else rows[int(key)]  # delay levels are numbered


# -- the replica's side ------------------------------------------------------------------------------


@dataclass(slots=True)
class Follower:
    """Applies one kind's pages. Invariant: readers see the table before or after a page, a whole table at once."""

    kind: str
    held: Held = field(default_factory=Held)
    _gathered: dict[str, Any] = field(default_factory=dict)

    def take(self, delta: Delta, table: PersistedTable) -> bool:
        """Follow the master by one page; whether this replica's table changed."""
        rows = {key: _decode_row(self.kind, key, raw) for key, raw in delta.changed.items()}
        if delta.whole:
            if not self.held.whole or self.held.epoch != delta.epoch:
                self._gathered = {}
            self._gathered.update(rows)
            self.held = Held(delta.epoch, delta.revision, whole=delta.more)
            if delta.more:
                return False
            rows, self._gathered = self._gathered, {}
            return self._adopt(table, rows, delta)
        self.held = Held(delta.epoch, delta.revision)
        return self._apply(table, rows, delta)

    def forget(self) -> None:
        """Start over: the next answer brings the whole table."""
        self.held, self._gathered = Held(), {}

    def _adopt(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == "delayOffsets":
            return table.adopt({int(level): offset for level, offset in rows.items()}, delta.data_version)
        return table.adopt(rows, delta.data_version) | self._forbid(table, delta)

    def _apply(self, table: Any, rows: dict[str, Any], delta: Delta) -> bool:
        if self.kind == "delayOffsets":
            return table.adopt({int(level): offset for level, offset in rows.items()}, delta.data_version)
        changes = Changes(delta.epoch, delta.revision, delta.data_version, rows, delta.removed)
        return table.apply(changes) | self._forbid(table, delta)

    def _forbid(self, table: Any, delta: Delta) -> bool:
        return delta.forbidden is not None and self.kind == "groups" and table.adopt_forbidden(delta.forbidden)


def decode_changes(body: bytes | None) -> dict[str, Delta]:
    """The deltas in an answer; an empty body says that nothing changed."""
    if not body:
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, Delta])
    except msgspec.DecodeError as error:
        raise BodyError(f"the master's changes are not readable: {error}") from error


def _decode_row(kind: str, key: str, raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw, type=ROW_TYPES[kind], strict=False)
    except (msgspec.DecodeError, KeyError) as error:
        raise BodyError(f"{kind} row {key!r} from the master is not readable: {error}") from error
