"""The offsets a new stream started from, kept so that a replay of its first batch starts there again.

Spark writes down where a batch ends, and for the first batch of a Python source not where it began: it asks again.
A source that starts at `latest` would then answer with a later place, and lose what lies between, silently.

`initialOffsetsLocation` names a file or directory for one query. Without it, Spark's default checkpoint location is
used if `register` was told of one: there, the offsets count only while some query's first batch is planned and not
done, since any other start is that of a new query.
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
    """A file that is written once; `replays_only` is for a place that many queries share."""

    def __init__(self, path: Path, checkpoints: Path | None = None) -> None:
        self.path = path
        self._checkpoints = checkpoints

    def load(self) -> dict[str, int] | None:
        """What was saved; None for a query that starts anew."""
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
            hint = "remove it only if the query's checkpoint goes too"
            raise SparkSourceError(f"initial offsets in {self.path} cannot be read ({error}): {hint}") from error

    def save(self, offsets: dict[str, int]) -> None:
        """Returns once the offsets would survive a crash."""
        try:
            temporary = sibling(self.path, str(os.getpid()))
            replace_file(self.path, [json.dumps(offsets).encode()], None, temporary=temporary)
        except OSError as error:
            hint = "give another initialOffsetsLocation"
            raise SparkSourceError(f"initial offsets cannot be kept in {self.path} ({error}): {hint}") from error


def place_for(options: ReadOptions, default_checkpoints: str | None) -> InitialOffsets | None:
    """Where this query's initial offsets belong; None when nobody said."""
    given = options.initial_offsets_location
    if given is not None:
        path = Path(given)
        return InitialOffsets(path if path.suffix == ".json" else path / FILE_NAME)
    if not default_checkpoints or not is_local(default_checkpoints):
        return None
    root = local_path(default_checkpoints, "spark.sql.streaming.checkpointLocation")
    source = repr((options.cluster.name_servers, options.topics, options.pattern, options.assigned, options.starting))
    name = hashlib.sha256(source.encode()).hexdigest()[:16]
    return InitialOffsets(root / _DEFAULT_DIRECTORY / f"{name}.json", root)


def has_unfinished_first_batch(checkpoints: Path) -> bool:
    """Whether a query below `checkpoints` planned its first batch and did not finish it."""
    if not checkpoints.is_dir():
        return False
    return any(
        (query / "offsets" / "0").exists() and not (query / "commits" / "0").exists() for query in checkpoints.iterdir()
    )
