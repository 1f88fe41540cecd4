"""A SQL92 expression as a look at many messages at once: which of them it selects, and which it may select.

What it trades: `property_code` decides on one message. This looks at a table of properties with numpy, and finds what
the expression surely selects and what it surely does not. Only the rest is left to `property_code`. A property test
holds that both select the same.

Only what is cheap and certain is looked at: a property compared with a text or a whole number. In `a AND b` either part
may refuse: whatever the other one is (unknown, or an error), the result is not True. In `a OR b` both parts must. What
is surely selected must not meet an error on the way, so each part of an OR must be decided.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from twinlog.broker.pulls.filters.expressions import Form, Node
from twinlog.broker.pulls.filters.java_compare import Kind
from twinlog.broker.pulls.filters.property_code import exact_bytes
from twinlog.store.queues.property_table import ABSENT, VALUE_BYTES_MAX, PropertyTable
from twinlog.wire.properties import NAME_END, PAIR_END

LookAt = Callable[[PropertyTable], tuple[np.ndarray, np.ndarray]]
"""returns the rows that may be selected, in order, and for each of these whether it surely is"""

_COMPARISONS_MAX = 16  # each looks at the whole table
_DIGITS_MAX = 9
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class Verdict(NamedTuple):
    """For each row of a table."""

    may: np.ndarray  # it may be True
    surely: np.ndarray  # it is True
    decided: np.ndarray  # whether it is True is known, and evaluating it is no error


Look = Callable[[PropertyTable], Verdict]


def first_look(node: Node) -> LookAt | None:
    """The function that returns which messages the expression may select; None if it could refuse nothing."""
    if _comparisons(node) > _COMPARISONS_MAX:
        return None
    parts = node.parts if node.form is Form.ALL else (node,)
    looks = [look for part in parts if (look := _look(part)) is not None]
    return _one_after_the_other(looks, is_whole=len(looks) == len(parts)) if looks else None


def _comparisons(node: Node) -> int:
    if node.form is Form.IN:
        return len(node.detail[0])
    return 1 if node.form not in (Form.ALL, Form.ANY) else sum(map(_comparisons, node.parts))


def _one_after_the_other(looks: list[Look], *, is_whole: bool) -> LookAt:
    """All of these must be True; `is_whole`: and nothing else."""

    def look_at(table: PropertyTable) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(len(table.lengths))
        surely = np.full(len(rows), is_whole)
        for number, look in enumerate(looks):
            verdict = look(table)
            (left,) = verdict.may.nonzero()
            rows, surely = rows[left], surely[left] & verdict.surely[left]
            if not len(rows):
                break
            if number + 1 < len(looks):
                table = table.only(left)
        return rows, surely

    return look_at


def _look(node: Node) -> Look | None:
    match node.form:
        case Form.ALL:
            looks = [look for part in node.parts if (look := _look(part)) is not None]
            return _all_of(looks, is_whole=len(looks) == len(node.parts)) if looks else None
        case Form.ANY:
            looks = [look for part in node.parts if (look := _look(part)) is not None]
            return _any_of(looks) if len(looks) == len(node.parts) else None
        case Form.EQUAL | Form.ORDERED:
            return _comparison(node)
        case Form.IN:
            words, negated = node.detail
            return None if negated else _texts(node.parts[0], sorted(words))
        case _:
            return None


def _all_of(looks: list[Look], *, is_whole: bool) -> Look:
    def verdict(table: PropertyTable) -> Verdict:
        may, surely, decided = map(np.logical_and.reduce, zip(*(look(table) for look in looks), strict=True))
        return Verdict(may, surely & is_whole, decided & is_whole)

    return verdict


def _any_of(looks: list[Look]) -> Look:
    def verdict(table: PropertyTable) -> Verdict:
        may, surely, decided = zip(*(look(table) for look in looks), strict=True)
        all_decided = np.logical_and.reduce(decided)
        return Verdict(np.logical_or.reduce(may), np.logical_or.reduce(surely) & all_decided, all_decided)

    return verdict


def _comparison(node: Node) -> Look | None:
    left, right = node.parts
    if left.form is not Form.PROPERTY or right.form is not Form.VALUE or not right.is_constant:
        return None
    if right.kind is Kind.TEXT and node.form is Form.EQUAL:
        return _texts(left, [right.value])
    if right.kind in (Kind.INT, Kind.LONG):
        return _number(left, operator.eq if node.form is Form.EQUAL else _SIGNS[node.detail[1]], right.value)
    return None


def _texts(left: Node, words: list[str]) -> Look | None:
    """A property that is one of these texts."""
    encoded = [exact_bytes(word) for word in words]
    if not all(word is not None and len(word) < VALUE_BYTES_MAX for word in encoded):
        return None
    start, sought = _start(left), [np.frombuffer(f"{word}{PAIR_END}".encode(), np.uint8) for word in words]

    def verdict(table: PropertyTable) -> Verdict:
        values = table.values_at(start)
        (rows,) = (values >= 0).nonzero()
        cells, values_there = table.cells, values[rows]
        same = np.zeros(len(values), bool)
        for word in sought:
            places, at = values_there, rows
            for number, byte in enumerate(word):  # most differ early
                is_same = cells[places + number] == byte
                places, at = places[is_same], at[is_same]
            same[at] = True
        return _verdict(table, values, same, same)

    return verdict


def _number(left: Node, compare: Callable[[np.ndarray, int], np.ndarray], wanted: int) -> Look:
    """A property that is a whole number and compares so with `wanted`; what has other characters may be one, too."""
    start = _start(left)

    def verdict(table: PropertyTable) -> Verdict:
        values = table.values_at(start)
        (rows,) = (values >= 0).nonzero()
        places, numbers = values[rows], np.zeros(len(rows), np.int64)
        for _ in range(_DIGITS_MAX):
            digits = table.cells[places].astype(np.int64) - 0x30
            is_digit = (digits >= 0) & (digits <= 9)
            if not is_digit.any():
                break
            numbers = np.where(is_digit, numbers * 10 + digits, numbers)
            places = places + is_digit
        is_plain = table.cells[places] == 2
        same = compare(numbers, wanted)
        may, surely = np.zeros((2, len(values)), bool)
        may[rows], surely[rows] = same | ~is_plain, same & is_plain
        return _verdict(table, values, may, surely)

    return verdict


def _verdict(table: PropertyTable, values: np.ndarray, may: np.ndarray, surely: np.ndarray) -> Verdict:
    """The verdict on rows whose values are at known places; of the others, only an absent value is certain."""
    is_open = (values < ABSENT) | ~table.fits
    may, surely = may | is_open, surely & ~is_open
    return Verdict(may, surely, surely | ~may)


def _start(node: Node) -> bytes:
    return f"{PAIR_END}{node.name}{NAME_END}".encode()
