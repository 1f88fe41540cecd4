"""The chain of records on a lake: reading what it adds up to, and adding to it.

A listing is not believed blindly. Numbers must follow each other, and the number after the last listed one is asked
for by its name until there is none: a store that returns half a listing is found out. When old records are removed,
a file with a fixed name says which state is the newest, so that an empty listing does not look like a new archive.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.lakes.records import (
    BEGIN,
    COMMITS,
    FORGET,
    ArchiveState,
    Held,
    Record,
    add_record,
    decode_record,
    decode_state,
    encode_record,
    encode_state,
    number_of,
    record_name,
    state_name,
)
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.lake.errors import LakeError
from twinlog.spark.lake.lake import Lake, in_parallel

_STATE_EVERY = 64  # records between two states
_KEPT = 1024  # records kept before the newest state: whoever is further behind than that is refused
_LISTINGS = 3
NEWEST = "_newest_state.json"


class TakenOver(SparkSourceError):
    """Another run has begun since; this one may add nothing."""

    def __init__(self, place: object, other: Record) -> None:
        hint = "let one of them fill it, and start the other one for another directory"
        super().__init__(f"{place}: another run ({other.by}) took over, this one adds nothing more; {hint}")


class Busy(SparkSourceError):
    """A run of the same kind is at work."""

    def __init__(self, place: object, role: str, other: str) -> None:
        super().__init__(
            f"another run is {role} {place} ({other}): wait for its end, or stop it, or give another directory"
        )


class Chain:
    """The records of one archive, as one run sees them."""

    def __init__(self, lake: Lake, role: str, run: str) -> None:
        self.state = load_state(lake)
        self._lake = lake
        self._role = role
        self._run = run
        self._began = False
        self._done: list[int] = []  # records that are finished, which the next record says

    def refresh(self) -> None:
        """Read the records that others added; TakenOver if another run of this kind has begun."""
        for record in follow(self._lake, self.state.number):
            self.state = add_record(self.state, record)
            if self._began and record.kind == BEGIN and record.role == self._role and record.run != self._run:
                raise TakenOver(self._lake.root, record)

    def begin(self, owner: str | None, position: Mapping[str, int] | None = None) -> None:
        """Announce this run; from now on `owner`, the run before, adds nothing. Busy if another one was faster.

        `position` is for an archive without one: a run that began and ended meanwhile has brought it further.
        """
        assert not self._began

        def unchanged(state: ArchiveState) -> bool:
            return state.owner(self._role) == owner and (position is None or state.position is None)

        if not self._add(BEGIN, unchanged, position=position):
            raise Busy(self._lake.root, self._role, "another run began at the same moment")
        self._began = True

    def add(self, kind: str, **values: Any) -> Record:
        """Add a record; its files are not yet where they belong, and `finish` brings them there."""
        assert self._began
        self._add(kind, **values)
        return self._last

    def forget(self, partitions: Mapping[str, Held]) -> None:
        """Record that these partitions, with what they held, were removed by hand; one that grew since stays."""
        assert self._began

        def unchanged(state: ArchiveState) -> bool:
            return all(state.partitions.get(name) == held for name, held in partitions.items())

        self._add(FORGET, unchanged, forgets=tuple(partitions))

    def finish(self, record: Record) -> None:
        """Bring the files of a record to their places; may be repeated, also by two runs at the same time."""
        in_parallel(lambda file: self._lake.move(file.staged, file.name), record.adds)
        self._lake.delete(record.removes)
        self._done.append(record.number)

    def _add(self, kind: str, still_valid: Callable[[ArchiveState], bool] = lambda _: True, **values: Any) -> bool:
        while True:
            self.refresh()
            if not still_valid(self.state):
                return False
            self._check_not_late()
            finishes = tuple(one.number for one in self.state.unfinished if one.number in self._done)
            record = Record(
                number=self.state.number + 1,
                kind=kind,
                role=self._role,
                run=self._run,
                finishes=finishes,
                by=this_process(),
                **values,
            )
            if self._lake.put_if_absent(record_name(record.number), encode_record(record)):
                self._last, self._done = record, []
                self.state = add_record(self.state, record)
                if record.number % _STATE_EVERY == _STATE_EVERY - 1:
                    self._save_state()
                return True

    def _check_not_late(self) -> None:
        """A number whose record was removed long ago could be taken again: so far behind, a run must stop."""
        newest = _newest_state(self._lake, _numbers(self._lake))
        if newest > self.state.number:
            behind = newest - self.state.number
            raise BadArchive(f"{self._lake.root}: this run is {behind} records behind others, so it stops; run again")

    def _save_state(self) -> None:
        """Save what the records add up to, and remove those that nobody needs any more."""
        self._lake.write(state_name(self.state.number), encode_state(self.state))
        self._lake.write(NEWEST, json.dumps({"state": self.state.number}).encode())  # before records are removed
        old = self.state.number - _KEPT
        self._lake.delete(
            state_name(at) if is_state else record_name(at) for at, is_state in _numbers(self._lake) if at < old
        )


def load_state(lake: Lake) -> ArchiveState:
    """What all records add up to now."""
    missing = ""
    for left in reversed(range(_LISTINGS)):
        numbers = _numbers(lake)
        newest = _newest_state(lake, numbers)
        state = ArchiveState()
        if newest >= 0:
            data = lake.read(state_name(newest))
            if data is None:
                missing = state_name(newest)
                continue  # a newer one has replaced it
            state = decode_state(data, lake.root / state_name(newest))
        listed = max((at for at, is_state in numbers if not is_state), default=-1)
        for record in follow(lake, state.number):
            state = add_record(state, record)
        if state.number >= listed:
            return state
        if not left:
            missing = record_name(state.number + 1)
            raise LakeError(lake.root / missing, f"is missing, and {record_name(listed)} is there")
    raise LakeError(lake.root / missing, "is missing, and it is the newest state", "repeat, or restore _commits/")


def follow(lake: Lake, after: int) -> list[Record]:
    """The records after this number, asked for by their names."""
    found = []
    while (data := lake.read(record_name(after + 1 + len(found)))) is not None:
        found.append(decode_record(data, lake.root / record_name(after + 1 + len(found))))
    return found


def this_process() -> str:
    return f"{socket.gethostname()}, process {os.getpid()}"


def _newest_state(lake: Lake, listed: Iterable[tuple[int, bool]]) -> int:
    """The number of the newest saved state, by the listing or by its own file; -1 if there is none."""
    newest = max((at for at, is_state in listed if is_state), default=-1)
    data = lake.read(NEWEST)
    if data is None:
        return newest
    try:
        return max(newest, int(json.loads(data)["state"]))
    except (ValueError, TypeError, KeyError) as error:
        raise BadArchive(f"{lake.root / NEWEST} cannot be used ({error!r}): restore it from a backup") from error


def _numbers(lake: Lake) -> list[tuple[int, bool]]:
    return [found for entry in lake.list(f"{COMMITS}/") if (found := number_of(entry.name)) is not None]
