"""The layout of an archive on disk, and how a batch becomes part of it; no Spark, no clock.

    <archive>/
      topic=Orders/day=2026-11-15/b000000000012-00003.parquet   file 3 of batch 12
      topic=Orders/day=2026-11-14/c9f1c…-00000.parquet            a file that compaction wrote
      _archive.json     format, columns and kind of source: written once
      _commit.json      the last committed batch, and where its files go
      _staging/         files of batches that are not committed: *.staged
      _compacting/      partitions being rewritten: *.staged
      _checkpoint/      Spark's offsets, and where the stream began
    .<archive>.compacting/    the two sides of an exchange, for a moment

Files that are not committed are below names with an underscore, which readers of tables skip. Their names do not end in
.parquet either, since a pattern such as **/*.parquet skips nothing. `_commit.json` decides: a batch is part of the
archive when its number is there. Its files are moved after that, and moving again does no harm: a file that is no
longer in staging has been moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from twinlog.base.atomic_file import replace_file, sibling
from twinlog.spark.errors import SparkSourceError, columns_of
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns

FORMATS = ("parquet", "delta", "iceberg")
TABLE_FORMATS = ("delta", "iceberg")  # with a log of their own, and columns that may change
PARTITION_COLUMNS = ("topic", "day")
KEY_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
HEADER_FILE, COMMIT_FILE = "_archive.json", "_commit.json"
STAGING, COMPACTING, CHECKPOINT = "_staging", "_compacting", "_checkpoint"
STAGED = ".staged"  # ends the names of files that are not committed
_NOTE = "made by twinlog pipeline archive"


class BadArchive(SparkSourceError):
    """A directory is not an archive, or the archive does not fit the job."""


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """What an archive holds, fixed when it was created."""

    format: str
    source: str  # brokers or stores
    columns: tuple[str, ...]

    def schema(self) -> Columns:
        return {**{name: MESSAGE_COLUMNS[name] for name in self.columns}, "day": "date"}


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What was added for one topic."""

    rows: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: TopicTotals) -> TopicTotals:
        return TopicTotals(self.rows + other.rows, self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of a batch that is not committed; `partition` is topic=…/day=…"""

    path: str
    partition: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveCommit:
    """The last committed batch; `moves` are pairs of paths below the archive, from staging to partition."""

    batch: int = -1
    query: str = ""
    run: str = ""
    moves: tuple[tuple[str, str], ...] = ()
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)  # totals of this run up to here
    batches: int = 0

    def covers(self, batch: int, query: str) -> bool:
        """Whether a batch is committed already; BadArchive if its number belongs to another stream."""
        if self.query and self.query != query:
            hint = "its checkpoint was removed or replaced; archive to a new directory"
            raise BadArchive(f"the archive was filled by query {self.query}, this is {query}: {hint}")
        return batch <= self.batch


def plan_commit(last: ArchiveCommit, batch: int, query: str, run: str, staged: Iterable[StagedFile]) -> ArchiveCommit:
    """The commit that adds `staged`, after `last`."""
    moves: list[tuple[str, str]] = []
    topics = dict(last.topics) if last.run == run else {}
    for number, file in enumerate(sorted(staged, key=lambda one: one.path)):
        moves.append((file.path, f"{file.partition}/b{batch:012d}-{number:05d}.parquet"))
        topic = topic_of(file.partition)
        topics[topic] = topics.get(topic, TopicTotals()) + TopicTotals(file.rows, 1, file.bytes)
    batches = (last.batches if last.run == run else 0) + (1 if moves else 0)
    return ArchiveCommit(batch, query, run, tuple(moves), topics, batches)


def topic_of(partition: str) -> str:
    """The topic of topic=…/day=…, with its escapes decoded."""
    return unquote(partition.split("/")[0].partition("=")[2])


def day_of(partition: str) -> str:
    return partition.split("/")[1].partition("=")[2]


def chosen(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns to archive, in the order of the source; all if none is named."""
    wanted = tuple(columns)
    for name in wanted:
        if name not in MESSAGE_COLUMNS:
            raise BadArchive(f"there is no column {name!r}: {columns_of(name, MESSAGE_COLUMNS)}")
    keep = {*wanted, *KEY_COLUMNS} if wanted else set(MESSAGE_COLUMNS)
    return tuple(name for name in MESSAGE_COLUMNS if name in keep)


def check_fits(root: object, found: ArchiveHeader, wanted: ArchiveHeader) -> None:
    """BadArchive if a run would add something other than the archive holds."""
    if found.format != wanted.format:
        raise BadArchive(f"{root} is a {found.format} archive: give --format {found.format} or another directory")
    if found.source != wanted.source:
        raise BadArchive(f"{root} is filled from {found.source}, not from {wanted.source}: give another directory")
    if found.columns != wanted.columns and found.format not in TABLE_FORMATS:
        missing = [name for name in found.columns if name not in wanted.columns]
        extra = [name for name in wanted.columns if name not in found.columns]
        difference = "; ".join(
            text
            for text in (
                f"it also has {', '.join(missing)}" if missing else "",
                f"it lacks {', '.join(extra)}" if extra else "",
            )
            if text
        )
        raise BadArchive(
            f"the columns do not fit the archive {root} ({difference}): name its columns or another directory"
        )


# -- the two small files -------------------------------------------------------------------------------


def load_header(root: Path) -> ArchiveHeader | None:
    """What the archive holds; None for a directory that is empty or does not exist."""
    data = _load(root / HEADER_FILE)
    if data is None:
        half_made = _temporary(root / HEADER_FILE).name  # of a run that was killed at its start
        strangers = [path.name for path in root.iterdir() if path.name != half_made] if root.is_dir() else []
        if strangers:
            hint = "give an empty directory, or one that an archive was written to"
            raise BadArchive(f"{root} is not an archive, it holds {', '.join(sorted(strangers)[:3])}: {hint}")
        return None
    return _header(data, root / HEADER_FILE)


def decode_header(data: bytes, place: object) -> ArchiveHeader:
    """The header from the content of its file."""
    return _header(_decode(data, place), place)


def encode_header(header: ArchiveHeader) -> bytes:
    return json.dumps({"about": _NOTE, **asdict(header)}).encode()


def _header(data: dict[str, Any], place: object) -> ArchiveHeader:
    try:
        found = ArchiveHeader(str(data["format"]), str(data["source"]), tuple(data["columns"]))
        found.schema()
    except (KeyError, TypeError) as error:
        raise BadArchive(f"{place} cannot be used ({error!r}): restore it from a backup") from error
    return found


def existing_header(root: Path) -> ArchiveHeader:
    if not root.is_dir():
        raise BadArchive(f"there is no archive {root}: give the directory that `twinlog pipeline archive` wrote to")
    found = load_header(root)
    if found is None:
        raise BadArchive(f"{root} is empty: `twinlog pipeline archive` has written nothing there")
    return found


def save_header(root: Path, header: ArchiveHeader) -> None:
    _save(root / HEADER_FILE, encode_header(header))


def load_commit(root: Path) -> ArchiveCommit:
    data = _load(root / COMMIT_FILE)
    if data is None:
        return ArchiveCommit()
    try:
        topics = {topic: TopicTotals(**totals) for topic, totals in data["topics"].items()}
        moves = tuple((str(old), str(new)) for old, new in data["moves"])
        return ArchiveCommit(data["batch"], data["query"], data["run"], moves, topics, data["batches"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadArchive(f"{root / COMMIT_FILE} cannot be used ({error!r}): restore it from a backup") from error


def save_commit(root: Path, commit: ArchiveCommit) -> None:
    save_json(root / COMMIT_FILE, asdict(commit))


def save_json(path: Path, data: Any) -> None:
    """Replace a small file in one step; it is on disk when this returns."""
    _save(path, json.dumps(data).encode())


def _save(path: Path, data: bytes) -> None:
    replace_file(path, [data], None, temporary=_temporary(path))


def _temporary(path: Path) -> Path:
    return sibling(path, "new")


def _load(path: Path) -> dict[str, Any] | None:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _decode(data, path)


def _decode(data: bytes, place: object) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise BadArchive(f"{place} is not JSON ({error}): restore it from a backup") from error
    if not isinstance(found, dict):
        raise BadArchive(f"{place} is not a JSON object: restore it from a backup")
    return found
