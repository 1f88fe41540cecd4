"""Checksums of commit-log ranges, and the search for the first byte at which two logs differ."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

from twinlog.wire.numbers import is_natural

DIGEST_BYTES = 16
RANGE_BYTES_MAX = 64 * 1024 * 1024  # what one request may ask a master to read
RANGES_MAX = 1024  # and in how many parts; an audit asks for 256
_TAIL_BYTES = 256 * 1024
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ByteRange:
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.begin}-{self.end}"


class Log(Protocol):
    """The part of a commit log that a digest reads."""

    def chunk(self, physical_offset: int, bytes_max: int) -> memoryview | None: ...


def range_digest(log: Log, wanted: ByteRange) -> str | None:
    """The digest of these bytes, or None when the log does not hold all of them."""
    digest, at = hashlib.blake2b(digest_size=DIGEST_BYTES), wanted.begin
    while at < wanted.end:
        chunk = log.chunk(at, min(_CHUNK_BYTES, wanted.end - at))
        if chunk is None or not chunk:
            return None
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()


def bytes_digest(data: bytes) -> str:
    """The digest of bytes that are at hand."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def parse_ranges(text: str | None) -> list[ByteRange]:
    """The ranges of a request, "0-1000,1000-2000"; ValueError for an invalid range, or too many bytes at once."""
    parts = (text or "").split(",", RANGES_MAX)
    if len(parts) > RANGES_MAX:
        raise ValueError(f"more than {RANGES_MAX} ranges in one request; ask for them in several")
    ranges: list[ByteRange] = []
    for part in parts:
        begin, separator, end = part.partition("-")
        if not separator or not is_natural(begin) or not is_natural(end) or int(begin) >= int(end):
            raise ValueError(f"{part[:80]!r} is not a byte range; write begin-end with begin below end")
        ranges.append(ByteRange(int(begin), int(end)))
    total = sum(one.end - one.begin for one in ranges)
    if total > RANGE_BYTES_MAX:
        raise ValueError(f"ranges of {total} bytes in one request; ask for at most {RANGE_BYTES_MAX} at a time")
    return ranges


def tail_search(begin: int, end: int) -> Generator[ByteRange, bool, int | None]:
    """Find where two logs begin to differ, with as few bytes as possible.

    Yields ranges and is sent whether both logs are equal there; returns the first offset from which they
    differ, or None when their common end is equal. Logs differ at their tails
    only: once different, a replica gets no further bytes, so an equal tail means an equal log.
    """
    low, high = max(begin, end - _TAIL_BYTES), end
    if low >= end or (yield ByteRange(low, end)):
        return None
    while low > begin:  # [low, high) differs; step back until what lies before it is equal
        size = min(4 * (high - low), RANGE_BYTES_MAX)
        before = max(begin, low - size)
        if (yield ByteRange(before, low)):
            break
        low, high = before, low
    return (yield from _halve(low, high))


def first_difference(begin: int, end: int, block_bytes: int) -> Generator[ByteRange, bool, int | None]:
    """Compare a whole range block by block; within the first one that differs, halve it down to the byte.

    Yields ranges and is sent whether both logs are equal there; returns the first different byte.
    """
    for block in blocks(begin, end, block_bytes):
        if (yield block):
            continue
        return (yield from _halve(block.begin, block.end))
    return None


def _halve(low: int, high: int) -> Generator[ByteRange, bool, int]:
    """The first byte that differs in [low, high), which differs."""
    while high - low > 1:
        middle = (low + high) // 2
        if (yield ByteRange(low, middle)):
            low = middle
        else:
            high = middle
    return low


def blocks(begin: int, end: int, size: int = RANGE_BYTES_MAX) -> Iterator[ByteRange]:
    """The range in pieces of at most `size` bytes; by default what one request may ask for."""
    while begin < end:
        yield ByteRange(begin, min(end, begin + size))
        begin += size
