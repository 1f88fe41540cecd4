"""Copies a master's log into a replica directory, one range after the other.

A range is received, its records are checked, written at their physical offsets, made durable and saved in the state,
and only then reported: a SYNC master never counts bytes that a power cut could undo. What it trades: bytes are copied
once more in memory, so that only whole records are ever written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from twinlog.base.clock import wall_clock_ms
from twinlog.replication.errors import ReplicationError
from twinlog.spark.jobs.sync.replicas.replica import Replica
from twinlog.spark.jobs.sync.replicas.whole_records import WholeRecords
from twinlog.spark.jobs.sync.sources import LogSource
from twinlog.store.errors import DamagedTransfer
from twinlog.wire.checksum import crc32

_TAKE_BYTES = 2 * 1024 * 1024  # records are checked in blocks that fit into the processor's cache
_RANGE_SECONDS_MAX = 5.0  # a report to the master at least this often
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """When copying stops: at `goal`, or when the time is up."""

    goal: int
    deadline: float  # of `clock`
    range_bytes_max: int
    clock: Callable[[], float] = time.monotonic


def copy_log(
    replica: Replica, source: LogSource, limits: CopyLimits, *, first: bytes = b"", begin: int | None = None
) -> int:
    """Copy towards the goal; returns how many bytes the log grew. `first` are bytes that were fetched before."""
    start = replica.log_end if begin is None else begin
    records = WholeRecords(start, replica.segment_bytes, known_damage=replica.state.known_damage)
    if first:
        records.feed(memoryview(first))
    at = start
    while at < limits.goal and (at == start or limits.clock() < limits.deadline):
        before = at
        at = _copy_range(replica, source, records, at, limits)
        if at == before:
            break
    if at == start and start < limits.goal:
        raise ReplicationError(
            f"the master's log ends at {limits.goal}, but no whole record came from {start} on in one tick; "
            "is the address right, and does the master still hold these bytes?"
        )
    return at - start


def _copy_range(replica: Replica, source: LogSource, records: WholeRecords, begin: int, limits: CopyLimits) -> int:
    """Copy one range; returns its end, up to which the log is durable."""
    clock = limits.clock
    began = clock()
    until = min(max(limits.deadline, began + _WAIT_SECONDS), began + _RANGE_SECONDS_MAX)
    at, crc, count, damaged = begin, 0, 0, None
    while at < limits.goal and at - begin < limits.range_bytes_max and damaged is None:
        left = until - clock()
        over = left <= 0 or records.next_offset >= limits.goal
        if not over:
            for append in source.receive(min(left, _WAIT_SECONDS)):
                if append.physical_offset != records.next_offset:
                    raise ReplicationError(
                        f"the master sends from {append.physical_offset}, the replica ends at {records.next_offset}"
                    )
                records.feed(append.data)
            if records.pending < _TAKE_BYTES and records.next_offset < limits.goal:
                continue
        try:
            if (whole := records.take()) is not None:
                crc = crc32(whole.data, crc)
                replica.append(whole)
                at, count = whole.end, count + whole.records
        except DamagedTransfer as error:
            damaged = error
        if over:
            break
    if at > begin:
        now_ms = wall_clock_ms()
        replica.commit(
            begin, crc, count, source=source.name, took_ms=lambda: round((clock() - began) * 1000), now_ms=now_ms
        )
        source.report(at)
    if damaged is not None:
        replica.save_damage(at)
        raise damaged
    return at
