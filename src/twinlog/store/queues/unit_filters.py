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
    """Records whose properties, in text form, `matches` accepts.

    `look_at` is a look at many of them: the rows of a table that may be accepted, and whether each surely is. A record
    whose lengths lead out of it is damaged, and accepted: whoever reads old records checks them.
    """

    matches: Callable[[bytes], bool]
    look_at: Callable[[PropertyTable], tuple[np.ndarray, np.ndarray]] | None = None

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

        `window` is the log from the first record on.
        """
        base, count = int(block.offsets[0]), len(block.offsets)
        if self.look_at is not None and np.minimum.reduce(block.sizes) >= HEAD_BYTES:
            places, accepted = self.look_at(PropertyTable(window, block.offsets - base, block.sizes))
            (open_at,) = (~accepted).nonzero()
        else:
            places, accepted, open_at = np.arange(count), np.zeros(count, bool), np.arange(count)
        if len(open_at) > EXACT_LOOKS_MAX:
            end = int(open_at[EXACT_LOOKS_MAX])
            open_at, count = open_at[:EXACT_LOOKS_MAX], int(places[end])
            places, accepted = places[:end], accepted[:end]
        if len(open_at):
            begins, sizes = block.offsets[places[open_at]] - base, block.sizes[places[open_at]]
            accepted[open_at] = self._passed(window, begins.tolist(), sizes.tolist())
        return places[accepted], count

    def _passed(self, window: memoryview, begins: list[int], sizes: list[int]) -> list[bool]:
        """Whether each of these records passes; the usual one (IPv4, short topic) is cut without a call."""
        matches, head, passed = self.matches, _HEAD.unpack_from, list[bool]()
        for begin, size in zip(begins, sizes, strict=True):
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
        return passed
