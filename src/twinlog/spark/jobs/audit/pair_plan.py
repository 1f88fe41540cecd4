"""What both logs of a pair hold, and which ranges of them are compared."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from twinlog.replication.segment_bytes import common_segment_bytes
from twinlog.spark.jobs.audit.findings import Finding
from twinlog.spark.jobs.audit.local_log import LogFiles, list_log
from twinlog.spark.jobs.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class AuditedLog:
    """The log of one endpoint; `listed` are its files if they can be read directly."""

    endpoint: Endpoint
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
class PairPlan:
    """One pair: the range that both logs hold, the ranges that only one holds, and the findings so far."""

    pair: str
    master: AuditedLog
    replica: AuditedLog
    begin: int
    end: int
    extra: tuple[int, int] | None
    missing: tuple[int, int] | None
    findings: tuple[Finding, ...]


def inspect_log(endpoint: Endpoint) -> AuditedLog:
    """Where one log begins and ends now."""
    if endpoint.store is not None:
        listed = list_log(endpoint.store, endpoint.commit_log_dirs)
        return AuditedLog(endpoint, listed.start, listed.end, listed.segment_bytes, listed.is_live, True, listed)
    status = endpoint.broker.status()
    if status is not None:
        return AuditedLog(endpoint, status["logStart"], status["logEnd"], status["segmentBytes"], True, True)
    info = endpoint.broker.runtime_info()
    start, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
    return AuditedLog(endpoint, max(0, start), end, endpoint.broker.segment_bytes() or 0, True)


def plan_pair(pair: str, master: AuditedLog, replica: AuditedLog, *, strict: bool = False) -> PairPlan:
    """What to compare, decided from the starts and ends of both logs."""
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
        return PairPlan(pair, master, replica, 0, 0, None, None, tuple(findings))
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
                what = f"after the last record comes an invalid record: {one.listed.torn}"
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
    return PairPlan(pair, master, replica, begin, end, extra, missing, tuple(findings))


def _missing_segments(pair: str, name: str, listed: LogFiles, begin: int, end: int) -> list[Finding]:
    found = []
    for before, after in itertools.pairwise(listed.files):
        first = before.base + before.size
        if first < after.base and first < end and after.base > begin:
            what = f"files from {first:020d} to before {after.path.name} are missing"
            found.append(Finding(pair, "segment", what, name, physical_offset=first, size=after.base - first))
    return found
