"""RocketMQ's Bloom filter: which bits stand for a consumer's filter in a message's bitmap.

Sizes follow from the wanted error rate and the expected number of filters; positions come from the low half of
MurmurHash3 (x64, 128 bits) by double hashing. Java must find the same bits, so every step repeats its arithmetic.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_C1, _C2 = 0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F
_BLOCK = struct.Struct("<QQ")


class BloomFilter:
    """`hashes` bits out of `bits` for each name."""

    def __init__(self, error_percent: int, names_expected: int) -> None:
        error = error_percent / 100.0
        self.hashes = math.ceil(_log(0.5, error))
        needed = math.ceil(names_expected * _log(2, 1 / error) * _log(2, math.e))
        self.bits = 8 * math.ceil(needed / 8)

    @property
    def byte_count(self) -> int:
        return self.bits // 8

    def positions(self, name: str) -> tuple[int, ...]:
        """The bits of `name`."""
        value = murmur3_low64(name.encode("utf-8", "surrogatepass"))
        low, high = value & 0xFFFF_FFFF, value >> 32
        found: list[int] = []
        for number in range(1, self.hashes + 1):
            combined = (low + number * high) & 0xFFFF_FFFF
            if combined & 0x8000_0000:  # negative in Java, which flips all bits
                combined ^= 0xFFFF_FFFF
            found.append(combined % self.bits)
        return tuple(found)

    def fits(self, bit_num: int, positions: Iterable[int]) -> bool:
        """Whether stored positions were made by a filter of this shape."""
        found = tuple(positions)
        return bit_num == self.bits and len(found) == self.hashes and all(0 <= bit < self.bits for bit in found)


def set_bits(bitmap: bytearray, positions: Iterable[int]) -> None:
    for bit in positions:
        bitmap[bit >> 3] |= 1 << (bit & 7)


def has_bits(bitmap: bytes, positions: Iterable[int]) -> bool:
    return all(bitmap[bit >> 3] >> (bit & 7) & 1 for bit in positions)


def murmur3_low64(data: bytes) -> int:
    """The first 64 of MurmurHash3's 128 bits, with seed 0."""
    h1 = h2 = 0
    blocks = len(data) // 16
    for at in range(0, blocks * 16, 16):
        k1, k2 = _BLOCK.unpack_from(data, at)
        h1 = ((_rotate(h1 ^ _mix1(k1), 27) + h2) * 5 + 0x52DC_E729) & _MASK
        h2 = ((_rotate(h2 ^ _mix2(k2), 31) + h1) * 5 + 0x3849_5AB5) & _MASK
    k1, k2 = _BLOCK.unpack(data[blocks * 16 :].ljust(16, b"\0"))
    h1 = h1 ^ _mix1(k1) ^ len(data)
    h2 = h2 ^ _mix2(k2) ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_finish(h1) + _finish(h2)) & _MASK


def _mix1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _finish(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return h ^ h >> 33


def _log(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
