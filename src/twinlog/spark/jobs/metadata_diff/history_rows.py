"""Rows of a synchronisation's history, read in this process: a short history is read sooner than a JVM starts.

`metadata_at` of `sync.history` asks Spark the same question; a test holds both answers equal.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import ArrowException

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.tables.history import CHANGES, check_kept
from twinlog.spark.paths import is_local, local_path

_COLUMNS = ["broker", "kind", "key", "seenAt", "sequence", "newValue"]
_KEY = ["broker", "kind", "key"]
_TRIES = 3


def history_bytes(history: str) -> int | None:
    """The size of the table of changes; None if it is not on a local path."""
    if not is_local(history):
        return None
    total = 0
    for file in _files(history):
        with contextlib.suppress(FileNotFoundError):  # a running synchronisation has just joined it with others
            total += file.stat().st_size
    return total


def rows_at(history: str, when: datetime, broker: str | None) -> list[dict[str, Any]]:
    """The last value of each key at a moment: broker, kind, key and value (JSON)."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # files were joined between listing and reading them
            return _rows_at(history, when, broker)
    return _rows_at(history, when, broker)


def _rows_at(history: str, when: datetime, broker: str | None) -> list[dict[str, Any]]:
    files = _files(history)
    if not files:
        raise not_a_history(history)
    check_kept(map(str, files), when)
    wanted = ds.field("seenAt") <= when
    if broker is not None:
        wanted &= ds.field("broker") == broker
    try:
        seen = ds.dataset([str(file) for file in files]).to_table(_COLUMNS, filter=wanted)
    except FileNotFoundError:
        raise
    except (ArrowException, OSError) as error:
        raise not_a_history(history) from error
    ordered = seen.sort_by([("seenAt", "ascending"), ("sequence", "ascending")])
    # Without threads `last` is the last in this order; a null is the value of a key that was deleted.
    keeps_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    last = ordered.group_by(_KEY, use_threads=False).aggregate([("newValue", "last", keeps_nulls)])
    rows = last.rename_columns({"newValue_last": "value"}).to_pylist()
    return [row for row in rows if row["value"] is not None]


def not_a_history(history: str) -> BadOption:
    hint = "give the directory that `twinlog pipeline sync --history` writes"
    return BadOption(f"{history} is not a history of metadata: {hint}")


def _files(history: str) -> list[Path]:
    return sorted((local_path(history, "history") / CHANGES).glob("[!._]*.parquet"))
