"""Whether the metadata of a pair agrees.

Metadata of a live replica follows its master with a delay. So a difference counts only if the replica does not reach
the value that the master had at the first read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from twinlog.replication.metadata.kinds import DELAY_OFFSETS, OFFSETS
from twinlog.replication.metadata.snapshots import DiffRow, Snapshot, diff
from twinlog.spark.jobs.audit.findings import Finding
from twinlog.spark.jobs.endpoint import Endpoint
from twinlog.spark.jobs.metadata_diff.snapshot import read_snapshot

_READ_AGAIN_S = 3.0
_NUMBERS = (OFFSETS.name, DELAY_OFFSETS.name)
_DELAYS_HIDDEN = "delay offsets are not compared: a live Java replica has them in its files only"
_OWN_COUNT = "the rows are equal; a Java replica counts its own changes on top of the master's version"


def compare_metadata(
    pair: str,
    read_pair: Callable[[], tuple[Snapshot, Snapshot]],
    *,
    settle_s: float,
    replica_is_java: bool = False,
    replica_is_live: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """The differences that remain after `settle_s`; `read_pair` reads (replica, master) as they are now."""
    hides_delays = replica_is_java and replica_is_live
    replica, master = read_pair()
    rows, first_master, waited = _differences(master, replica, hides_delays), master, 0.0
    while rows and waited < settle_s:
        sleep(_READ_AGAIN_S)
        waited += _READ_AGAIN_S
        replica, master = read_pair()
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


def metadata_reader(master: Endpoint, replica: Endpoint) -> Callable[[], tuple[Snapshot, Snapshot]]:
    """A function that reads both snapshots: the replica first, since whatever it holds its master had before."""
    return lambda: (read_snapshot(replica), read_snapshot(master))


def _differences(master: Snapshot, replica: Snapshot, hides_delays: bool) -> list[DiffRow]:
    rows = diff(master, replica)
    return [row for row in rows if DELAY_OFFSETS.name not in (row.kind, row.key)] if hides_delays else rows


def _has_followed(row: DiffRow, first_master: Snapshot, replica: Snapshot) -> bool:
    """Whether the replica has reached the master's first value: then it is only behind."""
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
    """The tables with equal rows and a newer version on the replica. Java: 5.x replicas count on top."""
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
