"""The comparison of one range of one pair, as a Spark task runs it.

First the bytes, or digests of them, show which blocks differ; only the records in those are read. A Java broker gives
neither bytes nor digests: it is asked for every record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from twinlog.replication.digests import range_digest
from twinlog.spark.jobs.audit.blocks import Digests, OffsetRun, unequal_by_digest, unequal_runs
from twinlog.spark.jobs.audit.findings import Finding, compare_records, finding_of
from twinlog.spark.jobs.audit.local_log import LocalLog, LogSpan, list_log
from twinlog.spark.jobs.audit.pair_plan import AuditedLog, PairPlan
from twinlog.spark.live_broker import LiveBroker
from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message
from twinlog.wire.record_layout import is_blank

_WINDOW_BYTES = 8 << 20
_BLANK_BYTES_MAX = 16 << 20  # a message that did not fit there is smaller than this
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One task: compare a range, or list the records in it that only one side has."""

    pair_number: int
    begin: int
    end: int
    only: str = ""  # extra, missing


def run_task(plan: PairPlan, task: RangeTask, *, check_crc: bool = False) -> Iterator[Finding]:
    """All findings of the range; the last one says that it was compared."""
    try:
        if task.only:
            yield from _only_one_side(plan, task)
            return
        yield from _compare(plan, task, check_crc)
        yield Finding(plan.pair, "compared", physical_offset=task.begin, size=task.end - task.begin)
    except FileNotFoundError as error:
        yield _vanished(plan, task, error)


def _compare(plan: PairPlan, task: RangeTask, check_crc: bool) -> Iterator[Finding]:
    master, replica = plan.master, plan.replica
    if master.listed is not None and replica.listed is not None:
        with LocalLog(master.listed) as ours, LocalLog(replica.listed) as theirs:
            runs = _settled(plan, lambda begin, end: unequal_runs(ours, theirs, begin, end), task)
            yield from _local_findings(plan, ours, theirs, runs)
            if check_crc:
                yield from _damaged(plan, ours, task, "both")
        return
    view = master if master.listed is not None else replica
    if view.listed is not None:
        with LocalLog(view.listed) as local:
            broker = (replica if view is master else master).endpoint.broker
            runs: list[OffsetRun] = [(task.begin, task.end)]
            if master.gives_digests and replica.gives_digests:
                runs = yield from _by_digest(plan, task, _local_digests(local), broker.digests)
            yield from _against_broker(plan, local, broker, view is master, runs)
            if check_crc:
                yield from _damaged(plan, local, task, "master" if view is master else "replica")
        return
    runs = [(task.begin, task.end)]
    if master.gives_digests and replica.gives_digests:
        runs = yield from _by_digest(plan, task, master.endpoint.broker.digests, replica.endpoint.broker.digests)
    for begin, end in runs:
        yield from _by_chain(plan, begin, end)


# -- which blocks differ -------------------------------------------------------------------------------


def _settled(plan: PairPlan, compare: Callable[[int, int], list[OffsetRun]], task: RangeTask) -> list[OffsetRun]:
    """The runs that differ; where a broker is writing, those that still differ a moment later."""
    runs = compare(task.begin, task.end)
    if runs and (plan.master.is_live or plan.replica.is_live):
        time.sleep(_SETTLE_S)
        runs = [run for begin, end in runs for run in compare(begin, end)]
    return runs


def _by_digest(
    plan: PairPlan, task: RangeTask, one: Digests, other: Digests
) -> Generator[Finding, None, list[OffsetRun]]:
    runs, gone = unequal_by_digest(one, other, task.begin, task.end)
    for begin, end in gone:
        what = "a side deleted these bytes while they were to be compared"
        yield Finding(plan.pair, "note", what, physical_offset=begin, size=end - begin)
    return runs


def _local_digests(log: LocalLog) -> Digests:
    return lambda ranges: [range_digest(log, one) for one in ranges]


# -- records of two stores -----------------------------------------------------------------------------


def _local_findings(plan: PairPlan, master: LocalLog, replica: LocalLog, runs: list[OffsetRun]) -> Iterator[Finding]:
    for begin, end in runs:
        found_any = False
        for low in range(begin, end, _WINDOW_BYTES):
            for finding in _window(plan, master, replica, low, min(end, low + _WINDOW_BYTES)):
                found_any = True
                yield finding
        if not found_any:
            what = "bytes outside of records differ: the unused end of a segment, or a filler"
            yield Finding(plan.pair, "note", what, physical_offset=begin, size=end - begin)


def _window(plan: PairPlan, master: LocalLog, replica: LocalLog, begin: int, end: int) -> Iterator[Finding]:
    ours, our_holes = _split(master.records_over(begin, end))
    theirs, their_holes = _split(replica.records_over(begin, end))
    for offset in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(offset), theirs.get(offset)
        size = max(found.size for found in (one, other) if found is not None)
        if offset + size > plan.end or offset < plan.begin:
            continue  # beyond what both have
        if one is not None and other is not None:
            left, right = master.bytes_at(offset, one.size), replica.bytes_at(offset, other.size)
            assert left is not None and right is not None, offset
            finding = compare_records(plan.pair, offset, bytes(left), bytes(right))
            if finding is not None:
                yield finding
        elif one is not None:
            yield _one_sided(plan, master, one, replica, their_holes, "missing", "replica")
        elif other is not None:
            yield _one_sided(plan, replica, other, master, our_holes, "extra", "master")
    for hole in our_holes:
        if hole in their_holes:
            what = f"no valid record on either side ({hole.reason})"
            yield Finding(plan.pair, "corrupt", what, "both", physical_offset=hole.offset, size=hole.size)


def _one_sided(
    plan: PairPlan, having: LocalLog, record: LogSpan, lacking: LocalLog, holes: list[LogSpan], kind: str, side: str
) -> Finding:
    """A record that only one side has: damaged on the other side if other bytes stand in its place, else missing."""
    data = having.bytes_at(record.offset, record.size)
    assert data is not None, record
    instead = lacking.bytes_at(record.offset, record.size)
    hole = next((one for one in holes if one.offset <= record.offset < one.offset + one.size), None)
    if instead is not None and any(instead) and hole is not None:
        what = f"no valid record on the {side} ({hole.reason})"
        return finding_of(plan.pair, "corrupt", data, record.offset, side=side, what=what)
    if not lacking.holds(record.offset):
        what = f"the {side} has no file for it"
    elif instead is None or not any(instead):
        what = f"the {side} has zeros there"
    else:
        what = f"the {side} has other records there"
    return finding_of(plan.pair, kind, data, record.offset, side="replica", what=what)


def _damaged(plan: PairPlan, log: LocalLog, task: RangeTask, side: str) -> Iterator[Finding]:
    for found in log.records_over(task.begin, task.end, check_crc=True):
        if found.reason and task.begin <= found.offset < task.end:
            data = log.bytes_at(found.offset, found.size)
            yield finding_of(plan.pair, "corrupt", data or b"", found.offset, side=side, what=found.reason)


def _split(found: Iterator[LogSpan]) -> tuple[dict[int, LogSpan], list[LogSpan]]:
    records: dict[int, LogSpan] = {}
    holes = []
    for one in found:
        if one.reason:
            holes.append(one)
        else:
            records[one.offset] = one
    return records, holes


# -- records of live brokers ---------------------------------------------------------------------------


def _against_broker(
    plan: PairPlan, local: LocalLog, broker: LiveBroker, local_is_master: bool, runs: list[OffsetRun]
) -> Iterator[Finding]:
    """Every record of the store in these runs, against what the broker has at the same place."""
    here, there = ("master", "replica") if local_is_master else ("replica", "master")
    for begin, end in runs:
        for low in range(begin, end, _WINDOW_BYTES):
            records, holes = _split(local.records_over(low, min(end, low + _WINDOW_BYTES)))
            wanted = [one for one in records.values() if plan.begin <= one.offset and one.offset + one.size <= plan.end]
            answers = broker.records_at([one.offset for one in wanted])
            for one, theirs in zip(wanted, answers, strict=True):
                view = local.bytes_at(one.offset, one.size)
                assert view is not None, one
                ours = bytes(view)
                if theirs is None or is_blank(theirs):
                    what = f"{broker.address} gives no record there"
                    yield finding_of(plan.pair, "corrupt", ours, one.offset, side=there, what=what)
                    continue
                pair = (ours, theirs) if local_is_master else (theirs, ours)
                finding = compare_records(plan.pair, one.offset, *pair)
                if finding is not None:
                    yield finding
            for hole in holes:
                for offset, record in _chain(broker, hole.offset, min(hole.offset + hole.size, plan.end)):
                    what = f"no valid record on the {here} ({hole.reason})"
                    yield finding_of(plan.pair, "corrupt", record, offset, side=here, what=what)


def _by_chain(plan: PairPlan, begin: int, end: int) -> Iterator[Finding]:
    """Compare the records of both brokers one by one, from the start of the segment; report those from `begin` on."""
    master, replica = plan.master.endpoint.broker, plan.replica.endpoint.broker
    segment = plan.master.segment_bytes
    at = max(begin - begin % segment, plan.begin)
    while at < end:
        (ours,) = master.records_at([at])
        theirs = replica.records_at([at])[0] if at + len(ours or b"x") > begin else ours
        guide = next((one for one in (ours, theirs) if one is not None and _is_valid(one, at)), None)
        if guide is None:
            blank = segment - at % segment
            if blank > _BLANK_BYTES_MAX and at + blank < end:
                what = f"neither {master.address} nor {replica.address} gives a record there"
                yield Finding(plan.pair, "error", f"{what}; audit their store directories", physical_offset=at)
                return
            at += blank
            continue
        if at + len(guide) > plan.end:
            return
        if ours is None or theirs is None:
            side = "master" if ours is None else "replica"
            address = (master if ours is None else replica).address
            what = f"{address} gives no record there"
            yield finding_of(plan.pair, "corrupt", guide, at, side=side, what=what)
        else:
            finding = compare_records(plan.pair, at, ours, theirs)
            if finding is not None:
                yield finding
        at += len(guide)


def _only_one_side(plan: PairPlan, task: RangeTask) -> Iterator[Finding]:
    view = plan.replica if task.only == "extra" else plan.master
    what = "after the master's end" if task.only == "extra" else "after the replica's end"
    for offset, record in _all_records(view, task.begin, task.end):
        yield finding_of(plan.pair, task.only, record, offset, side="replica", what=what)


def _all_records(view: AuditedLog, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    if view.listed is None:
        yield from _chain(view.endpoint.broker, begin, end)
        return
    with LocalLog(view.listed) as log:
        for found in log.records_over(begin, end):
            data = log.bytes_at(found.offset, found.size)
            if begin <= found.offset < end and not found.reason and data is not None:
                yield found.offset, bytes(data)


def _chain(broker: LiveBroker, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    at = begin
    while at < end:
        (record,) = broker.records_at([at])
        if record is None or not _is_valid(record, at):
            return
        yield at, record
        at += len(record)


def _is_valid(record: bytes, offset: int) -> bool:
    try:
        return decode_message(record, check_crc=False).physical_offset == offset
    except WireError:
        return False


def _vanished(plan: PairPlan, task: RangeTask, error: FileNotFoundError) -> Finding:
    """A file that is gone since the pair was inspected: deleted by its broker if it was the oldest, else an error."""
    place = f"{task.begin} to {task.end}"
    for view in (plan.master, plan.replica):
        if view.listed is not None:
            assert view.endpoint.store is not None
            now = list_log(view.endpoint.store, view.endpoint.commit_log_dirs)
            if now.start >= task.end:
                what = f"{view.endpoint} deleted its files of {place} while they were to be compared"
                return Finding(plan.pair, "note", what, physical_offset=task.begin, size=task.end - task.begin)
    return Finding(plan.pair, "error", f"{place}: {error}; is the store being moved?", physical_offset=task.begin)
