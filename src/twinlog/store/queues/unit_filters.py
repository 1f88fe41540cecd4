"""Filters that a read can apply to a block of units at once. Called, each decides on one unit or one record.

TagCodes       by the tags code of a unit
ExtTest        by the filter data of a unit, if its queue has an extension
PropertyTest   by the properties of a record
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from twinlog.store.queues.consume_queue import unpack_units
from twinlog.store.queues.consume_queue_ext import ExtUnit
from twinlog.wire.numbers import LONG_MAX, LONG_MIN
from twinlog.wire.record_layout import FIELD_AT, HEAD_BYTES, MAGIC_V1, PROPERTIES_LENGTH, record_properties
from twinlog.wire.sys_flag import BORN_HOST_V6, STORE_HOST_V6

Accepted = tuple[int, int, int]  # place in the block, physical offset, size
CODES_AT_ONCE_MAX = 16  # each costs one comparison of the whole block

_MAGIC_AT, _FLAG_AT, _BODY_LENGTH_AT = (FIELD_AT[name] for name in ("magic", "sys_flag", "body_length"))
_HEAD = struct.Struct(f">{_MAGIC_AT}xI{_FLAG_AT - _MAGIC_AT - 4}xi{_BODY_LENGTH_AT - _FLAG_AT - 4}xi")
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_LENGTHS_BYTES = 1 + PROPERTIES_LENGTH.size  # of topic and properties, around the topic


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

    def accepted(self, units: np.ndarray) -> Iterable[Accepted]:
        """The units of a block that this filter accepts."""
        tags_codes = units["tags_code"]
        found = np.zeros(len(units), bool)
        for code in self.sought:
            found |= tags_codes == code
        (places,) = found.nonzero()
        taken = units[places]
        return zip(places.tolist(), taken["physical_offset"].tolist(), taken["size"].tolist(), strict=True)


@dataclass(frozen=True, slots=True)
class ExtTest:
    """Units whose filter data passes `test`, and units without filter data."""

    test: Callable[[ExtUnit], bool]

    def __call__(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        return ext is None or self.test(ext)


@dataclass(frozen=True, slots=True)
class PropertyTest:
    """Records whose properties, in text form, `matches` accepts."""

    matches: Callable[[bytes], bool]

    def __call__(self, record: memoryview) -> bool:
        return self.matches(bytes(record_properties(record)))

    def accepted(self, data: bytes | bytearray, window: memoryview, base: int) -> Iterator[Accepted]:
        """The units of a block (`data`) whose records pass; `window` is the log from `base` on.

        It runs for each record that a pull with a property filter examines. The usual record (IPv4, short topic) is
        cut without a call.
        """
        matches, head = self.matches, _HEAD.unpack_from
        for place, (physical_offset, size, _) in enumerate(unpack_units(data)):
            begin = physical_offset - base
            magic, flags, body_length = head(window, begin)
            if magic == MAGIC_V1 and not flags & _V6:
                topic_at = begin + HEAD_BYTES + body_length
                properties = bytes(window[topic_at + _LENGTHS_BYTES + window[topic_at] : begin + size])
            else:
                properties = bytes(record_properties(window[begin : begin + size]))
            if matches(properties):
                yield place, physical_offset, size
