"""Keeps a table small while its one writer runs: files are joined, and rows that are too old are dropped.

    <oldest>-<random>.parquet               rows of that millisecond and later
    <oldest>-<random>-since<moment>.parquet  the same, and the table has lost rows from before `moment`

`plan_join` decides which files are rewritten, `kept_rows` and `one_per_interval` which rows they then have: all three
are pure. `exchange_files` puts the result in place: files that are not rewritten get a second name in a new directory,
the new file is written there, and both directories change places in one step. Killed at any moment, the table has its
old files or its new ones, never both and never neither.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from twinlog.base.atomic_directory import exchange_directories, remove_exchanged
from twinlog.base.atomic_file import sync_directory

FILES_MAX = 60  # more small files than these are joined
FILE_BYTES = 8 * 1024 * 1024  # a file of this size is not joined again
_NAME = re.compile(r"(\d+)-[0-9a-f]+(?:-since(\d+))?\.parquet")
pc: Any = pyarrow.compute  # its functions are made when it is imported
_EARLY = 20  # rows are dropped when they are older than the limit by a 20th of it: a table is rewritten now and then


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table: what its name and size show."""

    name: str
    size: int

    @property
    def oldest_ms(self) -> int:
        found = _NAME.fullmatch(self.name)
        return 0 if found is None else int(found[1])

    @property
    def since_ms(self) -> int:
        """The moment before which the table is not complete; 0 if nothing was dropped."""
        found = _NAME.fullmatch(self.name)
        return 0 if found is None or found[2] is None else int(found[2])


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """These files become one, without rows from before `cutoff_ms`."""

    files: tuple[TableFile, ...]
    cutoff_ms: int = 0

    def new_name(self, random: str) -> str:
        oldest = max(min(one.oldest_ms for one in self.files), self.cutoff_ms)
        since = max([self.cutoff_ms, *(one.since_ms for one in self.files)])
        return f"{oldest}-{random}" + (f"-since{since}" if since else "") + ".parquet"


def plan_join(
    files: Sequence[TableFile], *, keep_ms: int | None, now_ms: int, files_max: int = FILES_MAX
) -> JoinPlan | None:
    """Which files to rewrite now; None if the table is small enough."""
    small = [one for one in files if one.size < FILE_BYTES]
    if keep_ms is not None:
        cutoff = now_ms - keep_ms
        if any(one.oldest_ms < cutoff - keep_ms // _EARLY for one in files):
            chosen = {one.name: one for one in [*small, *(one for one in files if one.oldest_ms < cutoff)]}
            return JoinPlan(tuple(chosen.values()), cutoff)
    return JoinPlan(tuple(small)) if len(small) > files_max else None


def complete_since_ms(names: Iterable[str]) -> int:
    """The moment from which on a table with these files is complete; 0 if it never lost a row."""
    return max((TableFile(os.path.basename(name), 0).since_ms for name in names), default=0)


# -- rows ------------------------------------------------------------------------------------------------


def kept_rows(table: pa.Table, cutoff_ms: int, time: str, last_of: Sequence[Sequence[str]]) -> pa.Table:
    """The rows from `cutoff_ms` on; of those before it, the last of each combination of these columns."""
    if not cutoff_ms:
        return table
    is_kept = pc.greater_equal(table[time], pa.scalar(cutoff_ms * 1000, table.schema.field(time).type))
    wanted = np.flatnonzero(is_kept.to_numpy())
    old = np.flatnonzero(~is_kept.to_numpy())
    for columns in last_of:
        last = _last_rows(table, old, columns, time)
        if "key" in columns:  # a key that was deleted before needs no row
            last = last[table["newValue"].is_valid().to_numpy()[last]]
        wanted = np.union1d(wanted, last)
    return table.take(pa.array(wanted.astype(np.int64)))


def one_per_interval(table: pa.Table, kinds: Sequence[str], interval_ms: int) -> pa.Table:
    """Join the changes of one key in one interval into one row: the first old value, everything else of the last."""
    if not interval_ms or not table.num_rows:
        return table
    counted = pc.is_in(table["kind"], pa.array(kinds)).to_numpy()
    rows = np.flatnonzero(counted)
    if not len(rows):
        return table
    slots = table["seenAt"].cast(pa.int64()).to_numpy()[rows] // (interval_ms * 1000)
    codes = _codes(table, rows, ("broker", "replica", "kind", "key"))
    sequence = table["sequence"].to_numpy()[rows]
    order = np.lexsort((sequence, slots, codes))
    starts = np.flatnonzero((np.diff(codes[order], prepend=-1) != 0) | (np.diff(slots[order], prepend=-1) != 0))
    ends = np.append(starts[1:], len(order)) - 1
    first, last = rows[order[starts]], rows[order[ends]]
    source = np.arange(table.num_rows)
    source[last] = first
    old = table["oldValue"].combine_chunks().take(pa.array(source))
    place = table.schema.get_field_index("oldValue")
    keeps = ~counted
    keeps[last] = True
    return table.set_column(place, table.schema.field(place), old).filter(pa.array(keeps))


def _last_rows(table: pa.Table, rows: np.ndarray, columns: Sequence[str], time: str) -> np.ndarray:
    if not len(rows):
        return rows
    codes = _codes(table, rows, columns)
    moments = table[time].cast(pa.int64()).to_numpy()[rows]
    sequence = table["sequence"].to_numpy()[rows]
    order = np.lexsort((sequence, moments, codes))
    is_last = np.append(np.diff(codes[order]) != 0, True)
    return rows[order[is_last]]


def _codes(table: pa.Table, rows: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """A number for each combination of values in these columns."""
    chosen = [table[name].combine_chunks().take(pa.array(rows)) for name in columns]
    joined = pc.binary_join_element_wise(*chosen, "\0")
    return pc.dictionary_encode(joined).indices.to_numpy(zero_copy_only=False).astype(np.int64)


# -- files -----------------------------------------------------------------------------------------------


def leftover(path: Path) -> Path:
    """The directory beside a table in which its next state is made; after a kill it never has the only copy."""
    return path.with_name(f".{path.name}.new")


def exchange_files(path: Path, plan: JoinPlan, write: Callable[[Path], None]) -> None:
    """Give the table in `path` one new file, made by `write` in the directory it gets, for those of the plan."""
    aside = leftover(path)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        shutil.copymode(path, aside)
        replaced = {one.name for one in plan.files}
        for file in path.iterdir():
            if file.name not in replaced and not file.name.startswith((".", "_")):
                os.link(file, aside / file.name)
        write(aside)
        sync_directory(aside)
        exchange_directories(aside, path)
        sync_directory(path.parent)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    remove_exchanged(aside)
