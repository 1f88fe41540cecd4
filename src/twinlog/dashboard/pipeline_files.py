"""What data jobs left in their directories: archives, synchronisations, audits. Read only, without Spark.

    a directory with          is
    _archive.json             an archive of `twinlog pipeline archive`
    _status/latest.json       the copies of `twinlog pipeline sync`, with the history of their metadata
    *.parquet with auditId    the results of `twinlog pipeline audit --to`

Files are read in a thread, at most once in a few seconds however many browsers look, and only as much as is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlog.base.clock import wall_clock_ms
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.layout import CHECKPOINT, COMMIT_FILE, HEADER_FILE, load_commit, load_header
from twinlog.spark.jobs.sync_status import DIRECTORY, LATEST, SyncStatus, load_status

AGE_MS_MAX = 3_000
_CHILDREN_MAX = 200
_FILES_MAX = 40  # of a table, the newest
_ROWS_MAX = 200
_ACTIVE_MS = 120_000
_HISTORY = "_history"


@dataclass(frozen=True, slots=True)
class ArchiveView:
    """One archive; rows and bytes are of its last run."""

    path: str
    format: str
    source: str
    batch: int | None  # the last committed one
    batches: int
    rows: int
    bytes: int
    files: int
    topics: Mapping[str, tuple[int, int]]  # rows and bytes
    committed_ms: int | None
    next_batch: int | None  # one that is begun and not committed
    is_active: bool


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """A change of metadata that a synchronisation found."""

    seen_ms: int
    broker: str
    kind: str
    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class SyncView:
    path: str
    status: SyncStatus
    is_running: bool
    changes: tuple[MetadataRow, ...]  # the newest first
    changes_problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The result of one pair in one audit."""

    audit_id: str
    audited_ms: int
    master: str
    replica: str
    result: str
    compared_bytes: int | None


@dataclass(frozen=True, slots=True)
class AuditView:
    path: str
    rows: tuple[AuditRow, ...]  # the newest first


@dataclass(frozen=True, slots=True)
class PipelinesView:
    at_ms: int
    archives: tuple[ArchiveView, ...] = ()
    syncs: tuple[SyncView, ...] = ()
    audits: tuple[AuditView, ...] = ()
    problems: tuple[str, ...] = ()


class PipelineReader:
    """Reads the directories for all browsers."""

    def __init__(self, directories: Sequence[str], clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.directories = tuple(directories)
        self._clock_ms = clock_ms
        self._view = PipelinesView(0)
        self._lock = asyncio.Lock()

    async def view(self) -> PipelinesView:
        """At most AGE_MS_MAX old."""
        async with self._lock:
            if self._clock_ms() - self._view.at_ms > AGE_MS_MAX:
                self._view = await asyncio.to_thread(read_pipelines, self.directories, self._clock_ms())
            return self._view


def read_pipelines(directories: Sequence[str], now_ms: int) -> PipelinesView:
    """Everything in these directories, and in the directories in them; a problem names its directory."""
    found: dict[str, list[Any]] = {"archive": [], "sync": [], "audit": []}
    problems: list[str] = []
    for directory in directories:
        before = sum(map(len, found.values())) + len(problems)
        for path in _candidates(Path(directory), problems):
            try:
                kind, view = _read(path, now_ms)
            except (OSError, SparkSourceError, ValueError) as error:
                problems.append(f"{path}: {error}")
                continue
            if view is not None:
                found[kind].append(view)
        if before == sum(map(len, found.values())) + len(problems):
            problems.append(f"{directory}: no archive, synchronisation or audit is there yet")
    return PipelinesView(now_ms, tuple(found["archive"]), tuple(found["sync"]), tuple(found["audit"]), tuple(problems))


def _candidates(directory: Path, problems: list[str]) -> list[Path]:
    if not directory.is_dir():
        problems.append(f"{directory} is not a directory here; give the path that the job was given with --to")
        return []
    if _kind(directory):
        return [directory]
    children = sorted(one for one in directory.iterdir() if one.is_dir() and not one.name.startswith((".", "_")))
    return [one for one in children[:_CHILDREN_MAX] if _kind(one)]


def _kind(path: Path) -> str:
    if (path / HEADER_FILE).is_file():
        return "archive"
    if (path / DIRECTORY / LATEST).is_file():
        return "sync"
    return "audit" if next(path.glob("part-*.parquet"), None) is not None else ""


def _read(path: Path, now_ms: int) -> tuple[str, Any]:
    kind = _kind(path)
    if kind == "archive":
        return kind, _archive(path, now_ms)
    return kind, _sync(path, now_ms) if kind == "sync" else _audit(path)


def _archive(path: Path, now_ms: int) -> ArchiveView | None:
    header = load_header(path)
    if header is None:
        return None
    commit, committed_ms = load_commit(path), _changed_ms(path / COMMIT_FILE)
    begun, done = (_newest_number(path / CHECKPOINT / name) for name in ("offsets", "commits"))
    touched_ms = max(committed_ms or 0, _changed_ms(path / CHECKPOINT / "offsets") or 0)
    totals = commit.topics.values()
    return ArchiveView(
        path=str(path),
        format=header.format,
        source=header.source,
        batch=commit.batch if commit.batch >= 0 else None,
        batches=commit.batches,
        rows=sum(one.rows for one in totals),
        bytes=sum(one.bytes for one in totals),
        files=sum(one.files for one in totals),
        topics={name: (one.rows, one.bytes) for name, one in sorted(commit.topics.items())},
        committed_ms=committed_ms,
        next_batch=begun if begun is not None and (done is None or begun > done) else None,
        is_active=now_ms - touched_ms < _ACTIVE_MS,
    )


def _sync(path: Path, now_ms: int) -> SyncView | None:
    status = load_status(path)
    if status is None:
        return None
    try:
        rows = _newest_rows(path / _HISTORY / "changes", ("seenAt", "broker", "kind", "key", "oldValue", "newValue"))
    except ImportError:
        return SyncView(str(path), status, status.is_running(now_ms), (), "install twinlog[spark] to read its history")
    changes = sorted((_change(row) for row in rows), key=lambda one: -one.seen_ms)
    return SyncView(str(path), status, status.is_running(now_ms), tuple(changes[:_ROWS_MAX]))


def _audit(path: Path) -> AuditView | None:
    columns = ("auditId", "auditedAt", "pair", "master", "replica", "kind", "what", "size")
    try:
        rows = _newest_rows(path, columns)
    except ImportError as error:
        raise ValueError("install twinlog[spark] to read the results of audits") from error
    found = [
        AuditRow(row["auditId"], _ms(row["auditedAt"]), row["master"], row["replica"], row["what"] or "", row["size"])
        for row in rows
        if row["kind"] == "result"
    ]
    return AuditView(str(path), tuple(sorted(found, key=lambda one: -one.audited_ms)[:_ROWS_MAX])) if rows else None


def _newest_rows(table: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a table's newest files; none if it is another kind of table."""
    import pyarrow.parquet as pq

    files = sorted(table.glob("*.parquet"), key=lambda one: one.stat().st_mtime)[-_FILES_MAX:]
    rows: list[dict[str, Any]] = []
    for file in reversed(files):
        opened = pq.ParquetFile(file)
        if not set(columns) <= set(opened.schema_arrow.names):
            return []
        for batch in opened.iter_batches(batch_size=4_096, columns=list(columns)):
            rows += batch.to_pylist()
        if len(rows) > 20 * _ROWS_MAX:
            break
    return rows


def _change(row: Mapping[str, Any]) -> MetadataRow:
    return MetadataRow(_ms(row["seenAt"]), row["broker"], row["kind"], row["key"], row["oldValue"], row["newValue"])


def _ms(when: Any) -> int:
    return int(when.timestamp() * 1000)


def _changed_ms(path: Path) -> int | None:
    try:
        return int(path.stat().st_mtime * 1000)
    except OSError:
        return None


def _newest_number(directory: Path) -> int | None:
    """The highest name that is a number; Spark calls the files of its checkpoints so."""
    numbers = [int(one.name) for one in directory.iterdir() if one.name.isdigit()] if directory.is_dir() else []
    return max(numbers, default=None)
