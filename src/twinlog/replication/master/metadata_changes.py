"""The master's answer to a replica that asks for changed metadata; `metadata/delta.py` has the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twinlog.metadata.groups import GroupTable
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.tables import MetadataTables
from twinlog.replication.metadata.delta import Delta, Held, parse_held
from twinlog.replication.metadata.kinds import KIND_BY_NAME, table_of

ROWS_MAX = 10_000  # of one page, over all kinds: about 2 MiB of topics
PAGE_BYTES_MAX = 3 * 1024 * 1024  # of one kind, so that five kinds fit a frame: a row of offsets may have many queues


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
        removed=removed if not whole or resumed else [],  # an earlier page may have brought the row
        forbidden=forbidden,
    )


def _page(table: PersistedTable, since: int, rows_max: int) -> tuple[dict[str, msgspec.Raw], list[str], int]:
    """(encoded rows, removed keys, revision they reach): as many as fit a page."""
    while True:
        changed, removed, reached = table.revisions.page(since, rows_max)
        rows = table.rows
        encoded = {key: msgspec.Raw(msgspec.json.encode(_row(rows, key))) for key in changed}
        size = sum(len(key) + memoryview(row).nbytes for key, row in encoded.items())
        if size <= PAGE_BYTES_MAX or len(changed) + len(removed) < 2:
            return encoded, removed, reached
        rows_max = (len(changed) + len(removed)) // 2


def _row(rows: Mapping[Any, Any], key: str) -> Any:
    return rows[key] if key in rows else rows[int(key)]  # delay levels are numbered
