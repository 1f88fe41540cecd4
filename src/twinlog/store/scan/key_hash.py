"""Hashes of index keys, many at a time.

A fast path: Java's String.hashCode is a polynomial over the characters, so the hashes of many keys are sums of
one long product, and of keys of one length (message ids) a matrix product. A property test holds this equal
to `java_hash`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from twinlog.wire.java_text import java_hash, utf16_length

_WORD = 0xFFFFFFFF


def hash_keys(prefixes: list[int] | int, keys: list[str]) -> np.ndarray:
    """The index hash (int64, never negative) of each key behind its prefix, whose own hash is given."""
    text = "".join(keys)
    if text.isascii():
        units, lengths = np.frombuffer(text.encode(), np.uint8), np.array(list(map(len, keys)), np.int64)
    else:
        units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
        lengths = np.array([utf16_length(key) for key in keys], np.int64)
    length_max = int(lengths.max(initial=0))
    powers = _powers(1 << length_max.bit_length())
    if len(units) == length_max * len(keys):
        hashes = np.einsum("ij,j->i", units.reshape(len(keys), length_max).astype(np.uint32), powers[:length_max][::-1])
    else:
        hashes = _hash_ragged(units, lengths, powers)
    hashes += np.asarray(prefixes, np.uint32) * powers[lengths]
    return _absolute(hashes)


def hash_rows(prefixes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The same for keys given as rows of a matrix of ASCII bytes."""
    length = keys.shape[1]
    powers = _powers(1 << length.bit_length())
    hashes = np.einsum("ij,j->i", keys.astype(np.uint32), powers[:length][::-1])
    hashes += prefixes * powers[length]
    return _absolute(hashes)


@lru_cache(maxsize=1 << 18)  # topics that are sent to in turn must fit, or none is found again
def hash_prefix(topic: str) -> int:
    """The hash of `topic#`, unsigned, as `hash_keys` takes it."""
    return java_hash(topic + "#") & _WORD


def hash_key(topic: str, key: str) -> int:
    """The index hash of one key."""
    return int(hash_keys(hash_prefix(topic), [key])[0])


def _absolute(hashes: np.ndarray) -> np.ndarray:
    """Java takes the absolute value, which does not exist for the smallest int: that one becomes 0."""
    absolute = np.abs(hashes.view(np.int32).astype(np.int64))
    absolute[absolute > 0x7FFFFFFF] = 0
    return absolute


def _hash_ragged(units: np.ndarray, lengths: np.ndarray, powers: np.ndarray) -> np.ndarray:
    ends = np.cumsum(lengths)
    exponents = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    products = np.append(units * powers[exponents], np.uint32(0))  # the last key may be empty
    hashes = np.add.reduceat(products, ends - lengths, dtype=np.uint32)
    hashes[lengths == 0] = 0
    return hashes


@lru_cache(maxsize=32)
def _powers(count: int) -> np.ndarray:
    """31 to the 0, 1, ... `count` - 1 and one more, modulo 2 to the 32."""
    powers = np.full(count + 1, 31, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)
