"""RocketMQ's bloom filter: which consumers' SQL92 filters a message passes, in a few bytes.

Each consumer group of a topic owns `k` bits of a bitmap of `m`, found by hashing `group#topic`. When a record
is dispatched, the bits of every group whose expression it satisfies are set, and the bitmap is kept in the
queue's extension; a pull then skips messages whose bitmap lacks one of the group's bits. Bits are numbered
from the low end of each byte.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from twinlog.store.dispatch import DispatchRequest

log = logging.getLogger(__name__)

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

Expression = Callable[[Mapping[str, str]], object]


class BloomFilter:
    """Where a group's bits are; by default for 32 groups at an error rate of 20 %, as brokers are configured."""

    def __init__(self, error_rate_percent: int = 20, expected: int = 32) -> None:
        if not 1 <= error_rate_percent < 100:
            raise ValueError(f"maxErrorRateOfBloomFilter is {error_rate_percent}: choose 1 to 99 percent")
        if expected < 1:
            raise ValueError(f"expectConsumerNumUseFilter is {expected}: at least one consumer must be expected")
        rate = error_rate_percent / 100
        self.k = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.m = 8 * math.ceil(bits / 8)

    def positions(self, key: str) -> tuple[int, ...]:
        """The bits of `key`, which is `group#topic` for a consumer's filter."""
        value = murmur3_64(key.encode("utf-8", "replace"))
        low, high = value & 0xFFFFFFFF, value >> 32
        return tuple(_fold(low + turn * high & 0xFFFFFFFF) % self.m for turn in range(1, self.k + 1))

    def is_valid(self, positions: Sequence[int] | None, bit_count: int) -> bool:
        """Whether filter data from elsewhere (a file, a master) was made with these parameters."""
        return positions is not None and bit_count == self.m and len(positions) == self.k

    def empty_bitmap(self) -> bytearray:
        return bytearray(self.m // 8)


def set_bits(bitmap: bytearray, positions: Iterable[int]) -> None:
    for position in positions:
        bitmap[position >> 3] |= 1 << (position & 7)


def has_bits(bitmap: bytes | bytearray, positions: Iterable[int]) -> bool:
    """Whether all of the bits are set: the message may pass; otherwise it certainly does not."""
    return all(bitmap[position >> 3] >> (position & 7) & 1 for position in positions)


class FilterBitmapDispatcher:
    """Sets `DispatchRequest.bitmap`; it stands before the queues in the list of dispatchers.

    `filters` gives the topic's (expression, bit positions); an expression takes a message's properties and
    returns True for a match.
    """

    def __init__(
        self, bloom: BloomFilter, filters: Callable[[str], Sequence[tuple[Expression, Sequence[int]]]]
    ) -> None:
        self._bloom = bloom
        self._filters = filters

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        filters: dict[str, Sequence[tuple[Expression, Sequence[int]]]] = {}
        for request in batch:
            topic = request.topic
            if topic not in filters:
                filters[topic] = self._filters(topic)
            if filters[topic]:
                request.bitmap = self._bitmap(request, filters[topic])

    def flush(self) -> None:
        """Nothing to do: bitmaps live in the queues' extension."""

    def _bitmap(self, request: DispatchRequest, filters: Sequence[tuple[Expression, Sequence[int]]]) -> bytes:
        bitmap = self._bloom.empty_bitmap()
        properties = request.properties
        for expression, positions in filters:
            try:
                matches = expression(properties) is True
            except Exception:  # somebody's filter must not stop the queues; the pull decides again
                log.exception("filter failed topic=%s physical_offset=%d", request.topic, request.physical_offset)
                matches = True
            if matches:
                set_bits(bitmap, positions)
        return bytes(bitmap)


def murmur3_64(data: bytes) -> int:
    """The first half of MurmurHash3 x64 128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = int.from_bytes(data[at : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotate(k1 * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _rotate(k2 * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:].ljust(16, b"\0")
    h1 ^= _rotate(int.from_bytes(rest[:8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
    h2 ^= _rotate(int.from_bytes(rest[8:], "little") * _C2 & _MASK, 33) * _C1 & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _mix(h1) + _mix(h2) & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _fold(value: int) -> int:
    """A 32-bit value that Java would see as negative gets all its bits turned over."""
    return value ^ 0xFFFFFFFF if value & 0x80000000 else value
