"""A fast scan of log bytes: records become columns, not objects.

What it trades: `decode_message` of the wire package is the definition of a valid record. This module checks the same
things for thousands of records at a time with numpy, but does not decode the properties. A property test holds both
equal. Only three loops run per record: the chain of sizes where they differ, the CRC of bodies, and the rare fields
behind an IPv6 host.

A scan covers one segment (a record never spans two) and stops at the first place that is not a valid record:

    records ... | BLANK  the rest of the segment is unused
                | END    zeros or the end of the given bytes: nothing was written here
                | a damaged or torn record, with the reason

`walk` decides where to go on.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator

import numpy as np

from twinlog.store.log.record_crc import CRC_PROPERTY_BYTES, crc_rows
from twinlog.store.scan.malloc_hint import LARGE_BYTES, keep_freed_memory
from twinlog.store.scan.record_columns import ScannedRecords, columns_at
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.wire.checksum import crc32
from twinlog.wire.record_layout import (
    HEAD_NUMPY_FIELDS,
    MAGIC_BLANK,
    MAGIC_PREFIX,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
)

RECORDS_PER_BATCH = 8192
_SIZE_AND_MAGIC_TYPE = np.dtype(HEAD_NUMPY_FIELDS[:2])
_ALIKE_MIN = 8  # after so many records of one size, the next ones are checked all at once


def scan(
    buffer: memoryview | bytes | mmap.mmap,
    begin: int,
    end: int,
    base: int,
    *,
    check_crc: bool = True,
    check_record_crc: bool = False,
    check_offset: bool = True,
    batch_records: int = RECORDS_PER_BATCH,
) -> Iterator[ScannedRecords]:
    """The records in `buffer[begin:end]`, whose byte 0 is physical offset `base`.

    `check_crc` checks the record's own checksum where there is one, else that of the body. With `check_record_crc` a
    record without one of its own is invalid.
    Yields at least one batch; the last one (which may be empty) carries the stop.
    """
    view = memoryview(buffer)
    if end - begin > LARGE_BYTES:
        keep_freed_memory()
    while True:
        positions, stop = _walk(view, begin, end, batch_records)
        batch, bad = columns_at(view, positions, end, base, check_offset)
        bad = _first_bad_crc(batch, check_crc, check_record_crc) or bad
        if bad is not None:
            keep = int(np.searchsorted(batch.position, bad.position)) if len(batch) else 0
            batch, stop = batch.select(slice(0, keep)), bad
        batch.stop = stop
        yield batch
        if stop is not None:
            return
        begin = int(batch.position[-1] + batch.size[-1])


def find_record(
    buffer: mmap.mmap | bytes, begin: int, search_end: int, end: int, base: int, timestamp_min: int = 0
) -> int | None:
    """The first position between `begin` and `search_end` where a whole valid record begins.

    It must carry its own physical offset and must not be older than `timestamp_min`: bytes that a truncation left in
    the segment are older than the records written after it.
    """
    at = buffer.find(MAGIC_PREFIX, begin + 4, search_end)
    while at >= 0:
        position = at - 4
        batch = next(scan(buffer, position, end, base, batch_records=1))
        if len(batch) and int(batch.store_timestamp[0]) >= timestamp_min:
            return position
        at = buffer.find(MAGIC_PREFIX, at + 1, search_end)
    return None


def _walk(view: memoryview, at: int, end: int, count: int) -> tuple[np.ndarray, Stop | None]:
    """Follow the size fields; the stop is None when `count` records were found first."""
    positions: list[int] = []
    add, unpack, last = positions.append, SIZE_AND_MAGIC.unpack_from, end - 8
    stop = None
    alike, alike_enough, size_before = 0, _ALIKE_MIN, 0
    while len(positions) < count:
        if at > last:
            torn = at < end and any(view[at:end])
            stop = Stop(at, StopReason.SHORT if torn else StopReason.END, f"{end - at} bytes are left")
            break
        size, magic = unpack(view, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            if magic == MAGIC_BLANK:
                stop = Stop(at, StopReason.BLANK)
            elif size == 0 and magic == 0:
                stop = Stop(at, StopReason.END, "zeros follow")
            else:
                stop = Stop(at, StopReason.MAGIC, f"magic {magic:#010x}")
            break
        if size < RECORD_BYTES_MIN:
            stop = Stop(at, StopReason.SIZE, f"{size} bytes")
            break
        if at + size > end:
            stop = Stop(at, StopReason.SHORT, f"{size} bytes, {end - at} are left")
            break
        add(at)
        at += size
        alike = alike + 1 if size == size_before else 0
        size_before = size
        if alike == alike_enough:
            run = _run_of(view, at, end, size, count - len(positions))
            positions += range(at, at + run * size, size)
            at += run * size
            alike, alike_enough = 0, alike_enough if run >= _ALIKE_MIN else alike_enough * 2
    return np.array(positions, np.int64), stop


def _run_of(view: memoryview, at: int, end: int, size: int, count_max: int) -> int:
    """How many records of this size follow from `at` on; a busy log has long runs of one program's messages."""
    count = min(count_max, (end - at) // size)
    if count <= 0:
        return 0
    heads = np.ndarray((count,), _SIZE_AND_MAGIC_TYPE, buffer=view, offset=at, strides=(size,))
    magic = heads["magic"]
    fits = (heads["size"] == size) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
    return count if fits.all() else int(np.argmin(fits))


def _first_bad_crc(batch: ScannedRecords, check: bool, required: bool) -> Stop | None:
    if not len(batch) or not (check or required):
        return None
    view, position, size = batch.buffer, batch.position, batch.size
    windows = np.ndarray((len(view) - CRC_PROPERTY_BYTES + 1,), f"V{CRC_PROPERTY_BYTES}", buffer=view, strides=(1,))
    ends = windows[position + size - CRC_PROPERTY_BYTES].view(np.uint8).reshape(-1, CRC_PROPERTY_BYTES)
    has_crc, expected = crc_rows(ends)
    has_crc &= batch.properties_length >= CRC_PROPERTY_BYTES
    wrong = ~has_crc if required else np.zeros(len(batch), bool)
    rows = np.flatnonzero(has_crc)
    if len(rows):
        wrong[rows] = _crcs(view, position[rows], size[rows] - CRC_PROPERTY_BYTES) != expected[rows]
    rows = np.flatnonzero(~has_crc)
    if len(rows) and not required:
        wrong[rows] = _crcs(view, batch.body_at[rows], batch.body_length[rows]) != batch.body_crc[rows]
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return Stop(int(position[row]), StopReason.RECORD_CRC if required or has_crc[row] else StopReason.CRC)


def _crcs(view: memoryview, at: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The CRC-32 of each piece, without the sign bit."""
    step, first = int(at[-1] - at[0]) // max(1, len(at) - 1), int(length[0])
    if bool((length == first).all()) and bool((np.diff(at) == step).all()):  # a run of one program's messages
        pieces = np.ndarray((len(at), first), np.uint8, buffer=view, offset=int(at[0]), strides=(step, 1))
        return np.array(array("I", map(crc32, pieces)), np.int64) & 0x7FFFFFFF
    ends = (at + length).tolist()
    crcs = [crc32(view[begin:end]) for begin, end in zip(at.tolist(), ends, strict=True)]
    return np.array(array("I", crcs), np.int64) & 0x7FFFFFFF
