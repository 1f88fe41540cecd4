"""Which blocks of a range differ: found in mapped memory, or by digests.

What it trades: two mapped files are compared as 64-bit numbers, 4 MiB at a time, which costs half of one checksum of
either side. A remote broker is asked for digests of ever smaller ranges. Both ways return runs of blocks, in order,
which hold every byte that differs; the records in them are then read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from twinlog.replication.digests import RANGE_BYTES_MAX, ByteRange
from twinlog.spark.jobs.audit.local_log import LocalLog

BLOCK_BYTES = 4096
_CHUNK_BYTES = 4 << 20
_WIDTH = 8
_SPLIT = 16
_DIGEST_BYTES_MAX = 16 << 20
_LEAF_BYTES = 64 << 10

OffsetRun = tuple[int, int]  # physical offsets [begin, end)
Digests = Callable[[list[ByteRange]], list[str | None]]


def unequal_runs(master: LocalLog, replica: LocalLog, begin: int, end: int) -> list[OffsetRun]:
    """The runs of [begin, end) that differ, or for which one side has no file."""
    runs: list[OffsetRun] = []
    at = begin
    while at < end:
        ours, position, length = master.piece(at, min(_CHUNK_BYTES, end - at))
        theirs, other_position, length = replica.piece(at, length)
        if ours is None or theirs is None:
            if ours is not theirs:
                _add(runs, at, at + length)
        else:
            one, other = ours.view(position, length), theirs.view(other_position, length)
            if not _equal(one, other):
                for first, last in _unequal_blocks(one, other):
                    _add(runs, at + first, at + last)
            ours.release_pages(position, position + length)
            theirs.release_pages(other_position, other_position + length)
        at += length
    return runs


def unequal_by_digest(
    master: Digests, replica: Digests, begin: int, end: int
) -> tuple[list[OffsetRun], list[OffsetRun]]:
    """(runs that differ, ranges that a side no longer holds), asking for few digests of much before many of little."""
    runs: list[OffsetRun] = []
    gone: list[OffsetRun] = []
    level = [ByteRange(at, min(end, at + _DIGEST_BYTES_MAX)) for at in range(begin, end, _DIGEST_BYTES_MAX)]
    while level:
        deeper: list[ByteRange] = []
        for batch in _batches(level):
            for wanted, one, other in zip(batch, master(batch), replica(batch), strict=True):
                if one is None or other is None:
                    gone.append((wanted.begin, wanted.end))
                elif one != other:
                    deeper += _parts(wanted)
                    if wanted.end - wanted.begin <= _LEAF_BYTES:
                        runs.append((wanted.begin, wanted.end))
        level = deeper
    return _merged(runs), gone


def _equal(one: memoryview, other: memoryview) -> bool:
    whole = len(one) // _WIDTH * _WIDTH
    if whole and not np.array_equal(
        np.frombuffer(one, np.uint64, whole // _WIDTH), np.frombuffer(other, np.uint64, whole // _WIDTH)
    ):
        return False
    return bytes(one[whole:]) == bytes(other[whole:])


def _unequal_blocks(one: memoryview, other: memoryview) -> list[OffsetRun]:
    differs = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
    blocks = np.unique(differs // BLOCK_BYTES).tolist()
    return [(block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, len(one))) for block in blocks]


def _add(runs: list[OffsetRun], begin: int, end: int) -> None:
    if runs and runs[-1][1] >= begin:
        runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
    else:
        runs.append((begin, end))


def _merged(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    merged: list[OffsetRun] = []
    for begin, end in sorted(runs):
        _add(merged, begin, end)
    return merged


def _parts(wanted: ByteRange) -> list[ByteRange]:
    size = wanted.end - wanted.begin
    if size <= _LEAF_BYTES:
        return []
    step = max(_LEAF_BYTES, -(-size // _SPLIT))
    return [ByteRange(at, min(wanted.end, at + step)) for at in range(wanted.begin, wanted.end, step)]


def _batches(ranges: list[ByteRange]) -> Iterable[list[ByteRange]]:
    """As many ranges as one request may ask for."""
    batch: list[ByteRange] = []
    size = 0
    for one in ranges:
        length = one.end - one.begin
        if batch and (size + length > RANGE_BYTES_MAX or len(batch) >= 256):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    if batch:
        yield batch
