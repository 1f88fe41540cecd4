"""The properties text of many rows at once: `name 01 value 02` pairs, checked as `wire.properties.check_pairs` does.

A value with U+0001 in it is refused too: 4.x consumers would drop the pair.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from twinlog.spark.errors import BadRow
from twinlog.spark.writing.arrow_text import join, pc
from twinlog.spark.writing.stamps import LAYOUT_PROPERTY, STAMP_PROPERTY
from twinlog.wire import properties as names

_ALL_NAMES = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
RESERVED = frozenset(_ALL_NAMES - {names.NAME_END, names.PAIR_END} | {STAMP_PROPERTY, LAYOUT_PROPERTY})
_RESERVED = pa.array(sorted(RESERVED))
_COLUMNS = {
    "tags": names.TAGS,
    "keys": names.KEYS,
    "shardingKey": names.SHARDING_KEY,
    "delayLevel": names.DELAY,
    "deliverAt": names.TIMER_DELIVER_MS,
}
_HINTS = {names.TAGS: "column tags", names.KEYS: "column keys", names.SHARDING_KEY: "column shardingKey"}
_HINTS |= {names.DELAY: "column delayLevel", names.TIMER_DELIVER_MS: "column deliverAt"}
_EMPTY = pa.scalar(b"", pa.binary())


class RowNames:
    """The names of the rows of a piece in errors: their numbers in the partition."""

    def __init__(self, partition_id: int, numbers: np.ndarray) -> None:
        self.partition_id = partition_id
        self.numbers = numbers

    def __getitem__(self, row: int) -> str:
        return f"row {int(self.numbers[row])} of partition {self.partition_id}"


def pair(name: str, values: pa.Array) -> pa.Array:
    """`name 01 value 02` for each row; empty if the value is null or empty, since brokers do not keep such a pair."""
    values = values if values.type == pa.binary() else values.cast(pa.binary())
    text = join(pa.scalar(f"{name}\x01".encode(), pa.binary()), values, pa.scalar(b"\x02", pa.binary()))
    filled = pc.greater(pc.binary_length(values), 0)
    if values.null_count == 0 and pc.all(filled).as_py():
        return text
    return pc.if_else(pc.fill_null(filled, False), text, _EMPTY)


def column_pairs(columns: dict[str, pa.Array], rows: RowNames) -> list[pa.Array]:
    """The pairs of the properties that have a column of their own."""
    parts = []
    for column, name in _COLUMNS.items():
        values = columns.get(column)
        if values is None:
            continue
        if column == "delayLevel":
            bad = pc.fill_null(pc.less(values, 0), False)
            if pc.any(bad).as_py():
                row = pc.index(bad, True).as_py()
                raise BadRow(f"{rows[row]}: delayLevel is {values[row]}; give 1 to 18, or 0 for no delay")
            values = pc.if_else(pc.greater(values, 0), values, None).cast(pa.string())
        elif column == "deliverAt":
            values = values.cast(pa.string())
        else:
            _check_separators(values, lambda row, column=column: f"{rows[row]}: column {column}")
        parts.append(pair(name, values))
    return parts


def map_pairs(maps: pa.Array, rows: RowNames, *, drops_reserved: bool) -> pa.Array:
    """The pairs of each row's map; a null value means that the row lacks the property."""
    offsets = maps.offsets.to_numpy().astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    offsets -= low
    keys, values = maps.keys.slice(low, high - low).cast(pa.string()), maps.items.slice(low, high - low)
    values = values.cast(pa.string())
    keep = values.is_valid().to_numpy(zero_copy_only=False)
    reserved = pc.is_in(keys, _RESERVED).to_numpy(zero_copy_only=False)
    if drops_reserved:
        keep = keep & ~reserved
    elif (reserved & keep).any():
        item = int(np.argmax(reserved & keep))
        name = keys[item].as_py()
        hint = f"use {_HINTS[name]}" if name in _HINTS else "only brokers and clients set it"
        raise BadRow(
            f"{rows[_row(offsets, item)]}: property {name!r} is reserved: {hint},"
            " or set reservedProperties=drop to leave out such properties"
        )
    if not keep.all():
        chosen = pa.array(keep)
        keys, values = keys.filter(chosen), values.filter(chosen)
        offsets = np.concatenate(([0], np.cumsum(keep)))[offsets]
    for texts, what in ((keys, "name"), (values, "value")):
        empty = pc.equal(pc.binary_length(texts), 0)
        if pc.any(empty).as_py():
            item = pc.index(empty, True).as_py()
            problem = f"property '{keys[item]}={values[item]}' has an empty {what}"
            raise BadRow(f"{rows[_row(offsets, item)]}: {problem}, which RocketMQ does not keep: leave it out")
        _check_separators(texts, lambda item, what=what: f"{rows[_row(offsets, item)]}: property {what}")
    texts = pc.binary_join_element_wise(pc.binary_join_element_wise(keys, values, "\x01"), "", "\x02")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts), "").cast(pa.binary())


def _row(offsets: np.ndarray, item: int) -> int:
    """The row whose map holds this item."""
    return int(np.searchsorted(offsets, item, "right")) - 1


def _check_separators(texts: pa.Array, name_of: Callable[[int], str]) -> None:
    for mark in ("\x01", "\x02"):
        found = pc.fill_null(pc.match_substring(texts, mark), False)
        if pc.any(found).as_py():
            at = pc.index(found, True).as_py()
            raise BadRow(
                f"{name_of(at)} {texts[at].as_py()!r} holds the separator U+{ord(mark):04X}, which is not allowed"
            )
