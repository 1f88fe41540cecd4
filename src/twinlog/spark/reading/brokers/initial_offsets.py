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
from collections.abc import Mapping
from pathlib import Path

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import LakeError
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.lake.opening import open_anywhere
from twinlog.spark.paths import is_local, local_path
from twinlog.spark.reading.brokers.options import ReadOptions

FILE_NAME = "initial-offsets.json"
_DEFAULT_DIRECTORY = "_twinlog_initial_offsets"


class InitialOffsets:
    """A file that is written once; `checkpoints` is given if many queries share it."""

    def __init__(self, lake: Lake, name: str, checkpoints: Path | None = None) -> None:
        self.place = lake.root / name
        self._lake = lake
        self._name = name
        self._checkpoints = checkpoints

    def load(self) -> dict[str, int] | None:
        """What was saved; None for a new query."""
        if self._checkpoints is not None and not has_unfinished_first_batch(self._checkpoints):
            return None
        data = self._lake.read(self._name)
        if data is None:
            return None
        try:
            found = json.loads(data)
            return {str(queue): int(offset) for queue, offset in found.items()}
        except (ValueError, AttributeError, TypeError) as error:
            hint = "remove it only together with the query's checkpoint"
            raise SparkSourceError(f"initial offsets in {self.place} cannot be read ({error}): {hint}") from error

    def save(self, offsets: dict[str, int]) -> None:
        """Returns when the offsets would survive a crash."""
        try:
            self._lake.write(self._name, json.dumps(offsets).encode())
        except LakeError as error:
            hint = "or give another initialOffsetsLocation"
            raise SparkSourceError(f"initial offsets cannot be kept: {error}, {hint}") from error


def initial_offsets_file(
    options: ReadOptions, default_checkpoints: str | None, s3a: Mapping[str, str] | None = None
) -> InitialOffsets | None:
    """The file for this query's initial offsets; None if no place is known for it. `s3a` has settings for buckets."""
    given = options.initial_offsets_location
    if given is not None:
        place = parse_address(given, "initialOffsetsLocation")
        file = place if place.name.endswith(".json") else place / FILE_NAME
        return InitialOffsets(open_anywhere(file.parent, (s3a or {}).get), file.name)
    if not default_checkpoints or not is_local(default_checkpoints):
        return None
    root = local_path(default_checkpoints, "spark.sql.streaming.checkpointLocation")
    name = hashlib.sha256(_source_text(options).encode()).hexdigest()[:16]
    return InitialOffsets(LocalLake(parse_address(root, "checkpoints")), f"{_DEFAULT_DIRECTORY}/{name}.json", root)


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
