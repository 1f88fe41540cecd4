"""Which files of an archive count now, and where each of them is.

Files that are published are found by listing. Records that are not finished say what is missing there, or too much:
their files are in staging or in their places, and those that they remove may be there still.

    before the record of an exchange      old files
    after it                              new files, from staging until they are in their places
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twinlog.spark.jobs.archive.lakes.chain import load_state
from twinlog.spark.jobs.archive.lakes.records import ArchiveState, Held, batch_of
from twinlog.spark.jobs.archive.layout import STAGING
from twinlog.spark.lake.errors import LakeError
from twinlog.spark.lake.lake import Lake
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_TRIES = 5
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, order=True)
class LiveFile:
    """A file that counts; `path` is where it is now, in its partition or in staging."""

    name: str
    path: str
    size: int

    @property
    def partition(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def is_published(self) -> bool:
        return self.name == self.path


def live_files(
    lake: Lake, sleep: Callable[[float], None] = time.sleep
) -> tuple[ArchiveState, Mapping[str, list[LiveFile]]]:
    """The state of the archive, and the files of each partition; LakeError if the store lists fewer than there are."""
    problem = ""
    for number in range(_TRIES):
        if number:
            sleep(_PAUSE_S)
        state = load_state(lake)
        found = _find(lake, state)
        if found is None:
            problem = "files that were recorded are neither in their places nor in staging"
            continue
        problem = _difference(lake, state, found)
        if not problem:
            return state, found
    hint = "the store returns half a listing, or files were removed or added by hand: repeat, or restore them"
    raise LakeError(lake.root, problem, hint)


def _find(lake: Lake, state: ArchiveState) -> Mapping[str, list[LiveFile]] | None:
    """The files by partition; None if files moved between the two listings, and the state is to be read again."""
    # Staging first: a file that is published between the two listings is then found in its place.
    staged = {entry.name: entry.size for entry in lake.list(f"{STAGING}/")} if state.unfinished else {}
    listed = {
        entry.name: LiveFile(entry.name, entry.name, entry.size)
        for entry in lake.list("topic=")
        if entry.name.endswith(".parquet") and (batch_of(entry.name) or 0) <= state.batch
    }
    for record in state.unfinished:
        for file in record.adds:
            if file.name not in listed:
                if file.staged not in staged:
                    return None
                listed[file.name] = LiveFile(file.name, file.staged, staged[file.staged])
        for name in record.removes:
            listed.pop(name, None)
    found: dict[str, list[LiveFile]] = {}
    for file in sorted(listed.values()):
        found.setdefault(file.partition, []).append(file)
    return found


def _difference(lake: Lake, state: ArchiveState, found: Mapping[str, list[LiveFile]]) -> str:
    """What does not agree with the records, in words; empty if all does. A partition that is gone was removed."""
    for partition in sorted({*state.partitions, *found}):
        held = state.partitions.get(partition, Held())
        files = found.get(partition, [])
        if not files and not any(entry.name.endswith(".parquet") for entry in lake.list(f"{partition}/")):
            log.warning("a partition of the archive was removed", archive=str(lake.root), partition=partition)
            continue
        if len(files) != held.files or sum(file.size for file in files) != held.bytes:
            size = sum(file.size for file in files)
            return (
                f"{partition} has {len(files)} files of {size} bytes, the archive's records count {held.files} "
                f"of {held.bytes}"
            )
    return ""
