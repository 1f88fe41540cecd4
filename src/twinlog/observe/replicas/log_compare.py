"""Whether the log of a replica equals its master's, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from twinlog.client import Admin, ClientError
from twinlog.replication.digests import ByteRange, first_difference
from twinlog.replication.segment_bytes import SegmentBytesUnknown, common_segment_bytes, shown_segment_bytes
from twinlog.wire.record_layout import is_blank

MIB = 1024 * 1024
_BLOCK_BYTES = 16 * MIB
_BLANK_BYTES_MAX = 16 * MIB  # the message that did not fit there is smaller than this
Reached = Callable[[int], None]


class ReplicaDiffers(ClientError):
    """The logs of a master and its replica are not the same."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of the two brokers: its address, the range of its log, and whether it gives checksums."""

    address: str
    start: int
    end: int
    is_twinlog: bool
    segment_bytes: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared: the range of the log that both hold now."""

    master: Endpoint
    replica: Endpoint
    begin: int
    end: int

    @property
    def behind_bytes(self) -> int:
        return self.master.end - self.replica.end


@dataclass(frozen=True, slots=True)
class EqualLogs:
    """Both logs have the same bytes from `begin` to `end`."""

    comparison: Comparison
    what: str

    @property
    def lines(self) -> tuple[str, str]:
        one = self.comparison
        return (
            f"equal: {self.what} from {one.begin} to {one.end} are the same on {one.master.address} and "
            f"{one.replica.address}",
            f"the master has {one.behind_bytes} bytes more",
        )


async def plan_comparison(admin: Admin, master_address: str, replica_address: str, begin: int = 0) -> Comparison:
    """The range from `begin`, or from where both logs begin, to the replica's end; ReplicaDiffers if there is none."""
    # The replica first: its master already has all bytes that the replica has now.
    replica, master = await _endpoint(admin, replica_address), await _endpoint(admin, master_address)
    begin = max(master.start, replica.start, begin)
    if replica.end > master.end:
        raise ReplicaDiffers(
            f"{replica.address} ends at {replica.end}, {replica.end - master.end} bytes beyond the end of "
            f"{master.address}: these may be the only copies of acknowledged messages"
        )
    if begin >= replica.end:
        raise ReplicaDiffers(
            f"nothing to compare: {replica.address} holds {replica.start} to {replica.end}, "
            f"{master.address} {master.start} to {master.end}"
        )
    return Comparison(master, replica, begin, replica.end)


def newest_begin(plan: Comparison, bytes_max: int) -> int:
    """Where the newest `bytes_max` of the range begin; with Java's records, where the segment begins that has it."""
    begin = max(plan.begin, plan.end - bytes_max)
    if plan.master.is_twinlog and plan.replica.is_twinlog:
        return begin
    segment_bytes = plan.master.segment_bytes or plan.replica.segment_bytes
    return plan.begin if segment_bytes is None else max(plan.begin, begin - begin % segment_bytes)


async def compare_logs(admin: Admin, plan: Comparison, reached: Reached) -> EqualLogs:
    """Compare all of the range, and call `reached` on the way; ReplicaDiffers names the first byte that differs."""
    master, replica, begin = plan.master, plan.replica, plan.begin
    if master.is_twinlog and replica.is_twinlog:
        differs_at = await _compare_digests(admin, master, replica, begin, reached)
        what = f"{replica.end - begin} bytes"
    else:
        differs_at, records = await _compare_records(admin, master, replica, begin, reached)
        java = " and ".join(one.address for one in (master, replica) if not one.is_twinlog)
        what = f"{records} records (not the blank ends of segments, as Java at {java} gives no checksums)"
    if differs_at is not None:
        raise ReplicaDiffers(f"{replica.address} differs from {master.address} at byte {differs_at}")
    return EqualLogs(plan, what)


async def _endpoint(admin: Admin, address: str) -> Endpoint:
    status = await admin.replication_status(address)
    if status is not None:
        return Endpoint(address, status["logStart"], status["logEnd"], True, status["segmentBytes"])
    info, config = await admin.runtime_info(address), await admin.broker_config(address)
    begin, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
    return Endpoint(address, begin, end, False, shown_segment_bytes(config))


async def _compare_digests(
    admin: Admin, master: Endpoint, replica: Endpoint, begin: int, reached: Reached
) -> int | None:
    """The first different byte: both brokers read each block once and return its checksum."""
    search = first_difference(begin, replica.end, _BLOCK_BYTES)
    try:
        wanted: ByteRange = next(search)
        while True:
            digests = await asyncio.gather(
                *(admin.log_digest(one.address, wanted.begin, wanted.end) for one in (master, replica))
            )
            if "" in digests:
                lacking = (master, replica)[digests.index("")].address
                raise ReplicaDiffers(f"{lacking} no longer holds {wanted}; compare again with --begin {wanted.end}")
            reached(wanted.end)
            wanted = search.send(digests[0] == digests[1])
    except StopIteration as found:
        return found.value


async def _compare_records(
    admin: Admin, master: Endpoint, replica: Endpoint, begin: int, reached: Reached
) -> tuple[int | None, int]:
    """(first different record, records compared), asking both brokers for one record after the other."""
    try:
        segment_bytes = common_segment_bytes(master.segment_bytes, replica.segment_bytes)
    except SegmentBytesUnknown as error:
        raise ReplicaDiffers(str(error)) from error
    at, records = begin, 0
    while at < replica.end:
        ours, theirs = await asyncio.gather(*(admin.log_record(one.address, at) for one in (master, replica)))
        if ours is None or is_blank(ours):
            if theirs is not None and not is_blank(theirs):
                return at, records
            blank = segment_bytes - at % segment_bytes  # no record begins here: the rest of the segment is blank
            if blank > _BLANK_BYTES_MAX:
                raise ReplicaDiffers(f"neither {master.address} nor {replica.address} gives a record at byte {at}")
            at += blank
            continue
        if ours != theirs:
            return at, records
        at, records = at + len(ours), records + 1
        reached(at)
    return None, records
