"""The records of an archive on a lake, and what they add up to; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from twinlog.spark.jobs.archive.layout import BadArchive, StagedFile

COMMITS = "_commits"
ARCHIVING, COMPACTING = "archiving", "compacting"  # what a run does; one of each may be at work
BEGIN, BATCH, EXCHANGE, FORGET, END = "begin", "batch", "exchange", "forget", "end"
_RECORD = re.compile(rf"{COMMITS}/(\d{{12}})(\.state)?\.json")
_BATCH_FILE = re.compile(r"b(\d{12})-\d{5}\.parquet")


@dataclass(frozen=True, slots=True)
class Placed:
    """A file that a record adds: where it was staged, and its name in the table."""

    staged: str
    name: str
    rows: int
    bytes: int

    @property
    def partition(self) -> str:
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry of the chain; `finishes` are earlier records whose files are all where they belong."""

    number: int
    kind: str
    role: str
    run: str
    finishes: tuple[int, ...] = ()
    position: Mapping[str, int] | None = None  # of the source, after a batch or at the first begin
    batch: int = -1
    adds: tuple[Placed, ...] = ()
    removes: tuple[str, ...] = ()
    removed_bytes: int = 0
    forgets: tuple[str, ...] = ()  # partitions that were removed by hand
    by: str = ""  # host and process, for people

    @property
    def moves_files(self) -> bool:
        return bool(self.adds or self.removes)


@dataclass(frozen=True, slots=True)
class Held:
    """What one partition holds."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What all records up to `number` add up to."""

    number: int = -1
    batch: int = -1
    position: Mapping[str, int] | None = None
    runs: Mapping[str, str] = field(default_factory=dict)  # role -> the run that began last
    ended: Mapping[str, bool] = field(default_factory=dict)  # role -> whether that run has ended
    unfinished: tuple[Record, ...] = ()
    partitions: Mapping[str, Held] = field(default_factory=dict)

    def owner(self, role: str) -> str | None:
        """The run of this role that began last and has not ended."""
        return None if self.ended.get(role, True) else self.runs.get(role)


def add_record(state: ArchiveState, record: Record) -> ArchiveState:
    """The state after one more record."""
    if record.number != state.number + 1:
        raise BadArchive(f"record {record.number} follows {state.number}: a record is missing; restore {COMMITS}")
    runs, ended = dict(state.runs), dict(state.ended)
    if record.kind == BEGIN:
        runs[record.role], ended[record.role] = record.run, False
    elif record.kind == END and runs.get(record.role) == record.run:
        ended[record.role] = True
    left = tuple(one for one in state.unfinished if one.number not in record.finishes)
    return ArchiveState(
        record.number,
        max(record.batch, state.batch),
        state.position if record.position is None else dict(record.position),
        runs,
        ended,
        (*left, record) if record.moves_files else left,
        _changed(state.partitions, record),
    )


def _changed(partitions: Mapping[str, Held], record: Record) -> Mapping[str, Held]:
    if not record.moves_files and not record.forgets:
        return partitions
    found = {name: held for name, held in partitions.items() if name not in record.forgets}
    for file in record.adds:
        before = found.get(file.partition, Held())
        found[file.partition] = Held(before.files + 1, before.bytes + file.bytes)
    if record.removes:  # an exchange is about one partition
        partition = record.removes[0].rpartition("/")[0]
        before = found.get(partition, Held())
        found[partition] = Held(before.files - len(record.removes), before.bytes - record.removed_bytes)
    return {name: held for name, held in found.items() if held.files > 0}


def plan_batch(batch: int, staged: Iterable[StagedFile]) -> tuple[Placed, ...]:
    """Where the files of a batch go; the same names however often it is planned."""
    return tuple(
        Placed(file.path, f"{file.partition}/b{batch:012d}-{number:05d}.parquet", file.rows, file.bytes)
        for number, file in enumerate(sorted(staged, key=lambda one: one.path))
    )


def batch_of(name: str) -> int | None:
    """The batch that a file of the table belongs to; None for one of compaction."""
    found = _BATCH_FILE.fullmatch(name.rpartition("/")[2])
    return int(found[1]) if found else None


# -- as bytes ------------------------------------------------------------------------------------------


def record_name(number: int) -> str:
    return f"{COMMITS}/{number:012d}.json"


def state_name(number: int) -> str:
    return f"{COMMITS}/{number:012d}.state.json"


def number_of(name: str) -> tuple[int, bool] | None:
    """The number in a name of the chain, and whether it is a state; None for any other file."""
    found = _RECORD.fullmatch(name)
    return (int(found[1]), bool(found[2])) if found else None


def encode_record(record: Record) -> bytes:
    return json.dumps(asdict(record)).encode()


def decode_record(data: bytes, place: object) -> Record:
    values = _object(data, place)
    try:
        return _record(values)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(place, error) from error


def _record(values: Mapping[str, Any]) -> Record:
    adds = tuple(Placed(**one) for one in values["adds"])
    more = {"adds": adds, "removes": tuple(values["removes"]), "finishes": tuple(values["finishes"])}
    more["forgets"] = tuple(values["forgets"])
    return Record(**{**values, **more})


def encode_state(state: ArchiveState) -> bytes:
    return json.dumps(asdict(state)).encode()


def decode_state(data: bytes, place: object) -> ArchiveState:
    values = _object(data, place)
    try:
        unfinished = tuple(_record(one) for one in values["unfinished"])
        partitions = {name: Held(**held) for name, held in values["partitions"].items()}
        return replace(ArchiveState(**values), unfinished=unfinished, partitions=partitions)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(place, error) from error


def _object(data: bytes, place: object) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _damaged(place, error) from error
    if not isinstance(found, dict):
        raise _damaged(place, TypeError("not an object"))
    return found


def _damaged(place: object, error: Exception) -> BadArchive:
    return BadArchive(f"{place} cannot be used ({error!r}): restore it from a backup")
