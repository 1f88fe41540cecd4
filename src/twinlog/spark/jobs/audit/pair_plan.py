"""The first look at a pair: what both logs hold, what is to be compared, and whether their metadata agrees.

The replica is looked at first: whatever it holds by then, its master had before. Metadata of live brokers follows with
a delay, so a difference there counts only if the replica does not come to the value that the master showed first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from twinlog.replication.metadata.kinds import DELAY_OFFSETS, OFFSETS
from twinlog.replication.segment_bytes import common_segment_bytes
from twinlog.spark.jobs.audit.findings import Finding
from twinlog.spark.jobs.audit.local_log import LogFiles, list_log
from twinlog.spark.jobs.endpoint import Side
from twinlog.spark.jobs.metadata_diff.snapshot import DiffRow, Snapshot, diff, read_snapshot

_LOOK_AGAIN_S = 3.0
_NUMBERS = (OFFSETS.name, DELAY_OFFSETS.name)
_DELAYS_HIDDEN = "delay offsets are not compared: a live Java replica has them in its files only"
_OWN_COUNT = "the rows are equal; a Java replica counts its own changes on top of the master's version"


@dataclass(frozen=True, slots=True)
class LogView:
    """What is known of one side's log; `listed` are its files when they can be read directly."""

    side: Side
    start: int
    end: int
    segment_bytes: int  # 0 when its broker does not show it, until `plan_pair`
    is_live: bool
    gives_digests: bool = False
    listed: LogFiles | None = None

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True, slots=True)
class PairLook:
    """One pair: the range both have, ranges that only one has, and what was found so far."""

    pair: str
    master: LogView
    replica: LogView
    begin: int
    end: int
    extra: tuple[int, int] | None
    missing: tuple[int, int] | None
    findings: tuple[Finding, ...]


def look_at_log(side: Side) -> LogView:
    if side.store is not None:
        listed = list_log(side.store, side.commit_log_dirs)
        return LogView(side, listed.start, listed.end, listed.segment_bytes, listed.is_live, True, listed)
    status = side.broker.status()
    if status is not None:
        return LogView(side, status["logStart"], status["logEnd"], status["segmentBytes"], True, True)
    info = side.broker.runtime_info()
    start, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
    return LogView(side, max(0, start), end, side.broker.segment_bytes() or 0, True)


def plan_pair(pair: str, master: LogView, replica: LogView, *, strict: bool = False) -> PairLook:
    """What to compare, decided on the ends of both logs alone."""
    size = common_segment_bytes(master.segment_bytes, replica.segment_bytes)
    master, replica = (replace(one, segment_bytes=one.segment_bytes or size) for one in (master, replica))
    begin, end = max(master.start, replica.start), min(master.end, replica.end)
    findings: list[Finding] = []
    extra = missing = None
    if replica.is_empty:
        begin = end = master.start
    elif master.is_empty or begin >= end:
        holds = f"the master holds {master.start} to {master.end}, the replica {replica.start} to {replica.end}"
        findings.append(Finding(pair, "error", f"nothing to compare: {holds}; is it the replica of this master?"))
        return PairLook(pair, master, replica, 0, 0, None, None, tuple(findings))
    if not replica.is_empty and master.segment_bytes != replica.segment_bytes:
        sizes = f"the master's files have {master.segment_bytes} bytes, the replica's {replica.segment_bytes}"
        hint = "records stand at other places from the first file's end on; give both the same mappedFileSizeCommitLog"
        findings.append(Finding(pair, "note", f"{sizes}: {hint}"))
    for name, one in (("master", master), ("replica", replica)):
        if one.start < begin and not one.is_empty:
            other = "replica" if name == "master" else "master"
            what = f"the {other} begins at {begin}: what the {name} has before that is not compared"
            findings.append(Finding(pair, "note", what, other, physical_offset=one.start, size=begin - one.start))
        if one.listed is not None:
            findings += _missing_segments(pair, name, one.listed, begin, end)
            if one.listed.torn:
                what = f"what follows the last record is none: {one.listed.torn}"
                findings.append(Finding(pair, "corrupt", what, name, physical_offset=one.end))
    if replica.end > master.end:
        extra = (master.end, replica.end)
    behind = master.end - (end if replica.is_empty else replica.end)
    if behind > 0:
        first = master.end - behind
        findings.append(
            Finding(
                pair,
                "lag",
                f"the replica ends at {first}, the master at {master.end}",
                "replica",
                physical_offset=first,
                size=behind,
            )
        )
        missing = (first, master.end) if strict else None
    return PairLook(pair, master, replica, begin, end, extra, missing, tuple(findings))


def compare_metadata(
    pair: str,
    look: Callable[[], tuple[Snapshot, Snapshot]],
    *,
    settle_s: float,
    replica_is_java: bool = False,
    replica_is_live: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """The metadata differences that do not go away within `settle_s`; `look` gives (replica, master) as they are."""
    hides_delays = replica_is_java and replica_is_live
    replica, master = look()
    rows, first_master, waited = _differences(master, replica, hides_delays), master, 0.0
    while rows and waited < settle_s:
        sleep(_LOOK_AGAIN_S)
        waited += _LOOK_AGAIN_S
        replica, master = look()
        rows = [
            row for row in _differences(master, replica, hides_delays) if not _has_followed(row, first_master, replica)
        ]
    counted_on = _counted_on(rows, master, replica) if replica_is_java else set()
    findings = [Finding(pair, "note", _DELAYS_HIDDEN)] if hides_delays else []
    for row in rows:
        is_own_count = row.kind == "dataVersion" and row.key in counted_on
        kind, what = ("note", _OWN_COUNT) if is_own_count else ("metadata", _explain(row))
        finding = Finding(pair, kind, what, None, row.kind, row.key, row.field)
        findings.append(replace(finding, master_value=row.left, replica_value=row.right))
    return findings


def look_at_metadata(master: Side, replica: Side) -> Callable[[], tuple[Snapshot, Snapshot]]:
    return lambda: (read_snapshot(replica), read_snapshot(master))


def _differences(master: Snapshot, replica: Snapshot, hides_delays: bool) -> list[DiffRow]:
    rows = diff(master, replica)
    return [row for row in rows if DELAY_OFFSETS.name not in (row.kind, row.key)] if hides_delays else rows


def _has_followed(row: DiffRow, first_master: Snapshot, replica: Snapshot) -> bool:
    """Whether the replica has come to what the master showed at first: then it is only behind."""
    wanted, has = first_master[row.kind].get(row.key), replica[row.kind].get(row.key)
    if row.field == "*" or wanted is None or has is None:
        return wanted == has
    one, other = wanted.get(row.field), has.get(row.field)
    if row.kind == "dataVersion":
        return _version(has) >= _version(wanted)
    if row.kind in _NUMBERS and one is not None and other is not None:
        return int(other) >= int(one)
    return one == other


def _counted_on(rows: list[DiffRow], master: Snapshot, replica: Snapshot) -> set[str]:
    """The tables whose rows are equal and whose version is newer on the replica: Java 5.x replicas do that."""
    unequal = {row.kind for row in rows}
    kinds = {row.key for row in rows if row.kind == "dataVersion"} - unequal
    return {kind for kind in kinds if _version(replica["dataVersion"][kind]) > _version(master["dataVersion"][kind])}


def _version(fields: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(fields[name]) for name in ("stateVersion", "counter", "timestamp"))


def _explain(row: DiffRow) -> str:
    if row.left is None or row.right is None:
        side = "master" if row.left is None else "replica"
        return f"the {side} has no such {'key' if row.field == '*' else 'value'}"
    return "the values differ"


def _missing_segments(pair: str, name: str, listed: LogFiles, begin: int, end: int) -> list[Finding]:
    found = []
    for before, after in itertools.pairwise(listed.files):
        first = before.base + before.size
        if first < after.base and first < end and after.base > begin:
            what = f"files from {first:020d} to before {after.path.name} are missing"
            found.append(Finding(pair, "segment", what, name, physical_offset=first, size=after.base - first))
    return found
