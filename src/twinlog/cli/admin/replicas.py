"""Replicas: whether the log of a replica equals its master's, byte for byte."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from twinlog.cli.admin.command import command, need, opt
from twinlog.cli.report import Report, text_report
from twinlog.client import Admin, ClientError
from twinlog.replication.digests import ByteRange, first_difference
from twinlog.replication.segment_bytes import SegmentBytesUnknown, common_segment_bytes, shown_segment_bytes
from twinlog.wire.record_layout import is_blank

MIB = 1024 * 1024
_BLOCK_BYTES = 16 * MIB
_BLANK_BYTES_MAX = 16 * MIB  # the message that did not fit there is smaller than this


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


@command(
    "verifyReplica",
    "Compare the logs of replica and master",
    need("b", "brokerAddr", "the master, host:port"),
    need("r", "replicaAddr", "the replica, host:port"),
    opt("", "begin", "compare from this byte on; default: where both logs begin", kind=int),
)
async def verify_replica(admin: Admin, args: Namespace) -> Report:
    # The replica first: its master already has all bytes that the replica has now.
    replica, master = await _endpoint(admin, args.replicaAddr), await _endpoint(admin, args.brokerAddr)
    begin = max(master.start, replica.start, args.begin or 0)
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
    with _Progress(begin, replica.end) as progress:
        if master.is_twinlog and replica.is_twinlog:
            differs_at = await _compare_digests(admin, master, replica, begin, progress.reached)
            what = f"{replica.end - begin} bytes"
        else:
            differs_at, records = await _compare_records(admin, master, replica, begin, progress.reached)
            java = " and ".join(one.address for one in (master, replica) if not one.is_twinlog)
            what = f"{records} records (not the blank ends of segments, as Java at {java} gives no checksums)"
    if differs_at is not None:
        raise ReplicaDiffers(f"{replica.address} differs from {master.address} at byte {differs_at}")
    data = {"equal": True, "begin": begin, "end": replica.end, "behind": master.end - replica.end}
    line = f"equal: {what} from {begin} to {replica.end} are the same on {master.address} and {replica.address}"
    return text_report(line, f"the master has {data['behind']} bytes more", data=data)


async def _endpoint(admin: Admin, address: str) -> Endpoint:
    status = await admin.replication_status(address)
    if status is not None:
        return Endpoint(address, status["logStart"], status["logEnd"], True, status["segmentBytes"])
    info, config = await admin.runtime_info(address), await admin.broker_config(address)
    begin, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
    return Endpoint(address, begin, end, False, shown_segment_bytes(config))


async def _compare_digests(
    admin: Admin, master: Endpoint, replica: Endpoint, begin: int, reached: Callable[[int], None]
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
    admin: Admin, master: Endpoint, replica: Endpoint, begin: int, reached: Callable[[int], None]
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


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._began = time.monotonic()
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")

    def reached(self, at: int) -> None:
        if not self._shows:
            return
        done, total = at - self._begin, self._end - self._begin
        rate = done / max(0.001, time.monotonic() - self._began)
        left = (total - done) / max(1.0, rate)
        bar = ("#" * (30 * done // total)).ljust(30, ".")
        sys.stderr.write(f"\r\x1b[K[{bar}] {100 * done // total} %  {rate / MIB:.1f} MiB/s  {left:.0f} s left")
        sys.stderr.flush()
