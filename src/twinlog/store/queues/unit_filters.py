"""Filters that a read can apply to a block of units at once. Called, each decides on one unit or one record.

TagCodes       by the tags code of a unit
ExtTest        by the filter data of a unit, if its queue has an extension
PropertyTest   by the properties of a record
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twinlog.store.queues.consume_queue_ext import ExtUnit
from twinlog.store.queues.property_table import PropertyTable
from twinlog.wire.numbers import LONG_MAX, LONG_MIN
from twinlog.wire.record_layout import FIELD_AT, HEAD_BYTES, MAGIC_V1, PROPERTIES_LENGTH, record_properties
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

CODES_AT_ONCE_MAX = 16  # each costs one comparison of the whole block
EXACT_LOOKS_MAX = 128  # at records of a block: the loop waits meanwhile

_MAGIC_AT, _FLAG_AT, _BODY_LENGTH_AT = (FIELD_AT[name] for name in ("magic", "sys_flag", "body_length"))
_HEAD = struct.Struct(f">{_MAGIC_AT}xI{_FLAG_AT - _MAGIC_AT - 4}xi{_BODY_LENGTH_AT - _FLAG_AT - 4}xi")
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_LENGTHS_BYTES = 1 + PROPERTIES_LENGTH.size  # of topic and properties, around the topic


class Block(NamedTuple):
    """The units of a block as columns of 64-bit numbers."""

    offsets: np.ndarray
    sizes: np.ndarray
    tags_codes: np.ndarray


class TagCodes:
    """Units with one of these tags codes, or with an unknown one."""

    __slots__ = ("codes", "sought")

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)
        self.sought = [code for code in self.codes if LONG_MIN <= code <= LONG_MAX]

    def __call__(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        return tags_code is None or tags_code in self.codes

    @property
    def goes_in_blocks(self) -> bool:
        return len(self.sought) <= CODES_AT_ONCE_MAX

    @property
    def key(self) -> Hashable:
        """Equal for filters that accept the same."""
        return self.codes

    def accepted(self, block: Block) -> tuple[np.ndarray, int]:
        """Which units of a block this filter accepts, and how many it has examined: all of them."""
        found = np.zeros(len(block.offsets), bool) if len(self.sought) != 1 else block.tags_codes == self.sought[0]
        for code in self.sought[1:] if len(self.sought) == 1 else self.sought:
            found |= block.tags_codes == code
        (places,) = found.nonzero()
        return places, len(found)


@dataclass(frozen=True, slots=True)
class ExtTest:
    """Units whose filter data passes `test`, and units without filter data."""

    test: Callable[[ExtUnit], bool]

    def __call__(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        return ext is None or self.test(ext)


@dataclass(frozen=True, slots=True)
class PropertyTest:
    """Records whose properties, in text form, `matches` accepts; `may_match` is a quick look at many of them.

    A record whose lengths lead out of it is damaged, and accepted: whoever reads old records checks them.
    """

    matches: Callable[[bytes], bool]
    may_match: Callable[[PropertyTable], np.ndarray] | None = None

    def __call__(self, record: memoryview) -> bool:
        try:
            properties = bytes(record_properties(record))
        except (IndexError, struct.error):
            return True
        return self.matches(properties)

    @property
    def key(self) -> Hashable:
        """Equal for filters that accept the same."""
        return self.matches

    def accepted(self, block: Block, window: memoryview) -> tuple[np.ndarray, int]:
        """Which units of a block have records that pass, and how many it has examined: not all if many cost much.

        `window` is the log from the first record on. The loop runs for each record that a quick look has not refused.
        The usual record (IPv4, short topic) is cut without a call.
        """
        matches, head, base = self.matches, _HEAD.unpack_from, int(block.offsets[0])
        offsets, sizes, count = block.offsets, block.sizes, len(block.offsets)
        places = np.arange(count)
        if self.may_match is not None and np.minimum.reduce(sizes) >= HEAD_BYTES:
            (places,) = self.may_match(PropertyTable(window, offsets - base, sizes)).nonzero()
        if len(places) > EXACT_LOOKS_MAX:
            count = int(places[EXACT_LOOKS_MAX])
            places = places[:EXACT_LOOKS_MAX]
        passed = []
        for begin, size in zip((offsets[places] - base).tolist(), sizes[places].tolist(), strict=True):
            try:
                magic, flags, body_length = head(window, begin)
                if magic == MAGIC_V1 and not flags & _V6:
                    topic_at = begin + HEAD_BYTES + body_length
                    properties = bytes(window[topic_at + _LENGTHS_BYTES + window[topic_at] : begin + size])
                else:
                    properties = bytes(record_properties(window[begin : begin + size]))
            except (IndexError, struct.error):
                properties = None
            passed.append(properties is None or matches(properties))
        return places[np.array(passed, bool)], count
