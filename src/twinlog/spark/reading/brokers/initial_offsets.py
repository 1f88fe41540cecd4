"""The offsets that a new stream started from, saved so that a replay of its first batch starts there again.

Spark saves where a batch ends. For the first batch of a Python source it does not save where it began: it asks again.
A source that starts at `latest` would then answer with later offsets and silently lose the messages in between.

`initialOffsetsLocation` names a file or directory for one query. Without it, a file in Spark's default checkpoint
location is used, if `register` found one. There, saved offsets count only while the first batch of some query is
planned and not finished: any other start is that of a new query.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from twinlog.base.atomic_file import replace_file, sibling
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.paths import is_local, local_path
from twinlog.spark.reading.brokers.options import ReadOptions

FILE_NAME = "initial-offsets.json"
_DEFAULT_DIRECTORY = "_twinlog_initial_offsets"


class InitialOffsets:
    """A file that is written once; `checkpoints` is given if many queries share it."""

    def __init__(self, path: Path, checkpoints: Path | None = None) -> None:
        self.path = path
        self._checkpoints = checkpoints

    def load(self) -> dict[str, int] | None:
        """What was saved; None for a new query."""
        if self._checkpoints is not None and not has_unfinished_first_batch(self._checkpoints):
            return None
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = json.loads(data)
            return {str(queue): int(offset) for queue, offset in found.items()}
        except (ValueError, AttributeError, TypeError) as error:
            hint = "remove it only together with the query's checkpoint"
            raise SparkSourceError(f"initial offsets in {self.path} cannot be read ({error}): {hint}") from error

    def save(self, offsets: dict[str, int]) -> None:
        """Returns when the offsets would survive a crash."""
        try:
            temporary = sibling(self.path, str(os.getpid()))
            replace_file(self.path, [json.dumps(offsets).encode()], None, temporary=temporary)
        except OSError as error:
            hint = "give another initialOffsetsLocation"
            raise SparkSourceError(f"initial offsets cannot be kept in {self.path} ({error}): {hint}") from error


def initial_offsets_file(options: ReadOptions, default_checkpoints: str | None) -> InitialOffsets | None:
    """The file for this query's initial offsets; None if no place is known for it."""
    given = options.initial_offsets_location
    if given is not None:
        path = Path(given)
        return InitialOffsets(path if path.suffix == ".json" else path / FILE_NAME)
    if not default_checkpoints or not is_local(default_checkpoints):
        return None
    root = local_path(default_checkpoints, "spark.sql.streaming.checkpointLocation")
    name = hashlib.sha256(_source_text(options).encode()).hexdigest()[:16]
    return InitialOffsets(root / _DEFAULT_DIRECTORY / f"{name}.json", root)


def _source_text(options: ReadOptions) -> str:
    """What a query reads, as text. Files on disk are named after it, so it must stay the same in all versions."""
    at = options.starting
    kind = f"<Place.{at.kind.name}: {at.kind.value!r}>"
    starting = f"Position(place={kind}, time_ms={at.time_ms!r}, numbers={at.numbers!r})"
    read = f"{options.cluster.name_servers!r}, {options.topics!r}, {options.pattern!r}, {options.assigned!r}"
    return f"({read}, {starting})"


def has_unfinished_first_batch(checkpoints: Path) -> bool:
    """Whether a query below `checkpoints` planned its first batch and did not finish it."""
    if not checkpoints.is_dir():
        return False
    return any(
        (query / "offsets" / "0").exists() and not (query / "commits" / "0").exists() for query in checkpoints.iterdir()
    )
