"""A SQL92 expression as a first look at many messages at once: which of them it cannot select.

What it trades: `property_code` decides on one message. This looks at a table of properties with numpy, refuses what the
expression surely does not select, and leaves the others to `property_code`. So a message that is refused costs next to
nothing, and an answer costs as much as before. A property test holds that nothing is refused which is selected.

Only what is cheap and certain is looked at: a property compared with a text or a whole number. In `a AND b` either part
may refuse: whatever the other one is (unknown, or an error), the result is not True. In `a OR b` both parts must.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from twinlog.broker.pulls.filters.expressions import Form, Node
from twinlog.broker.pulls.filters.java_compare import Kind
from twinlog.broker.pulls.filters.property_code import exact_bytes
from twinlog.store.queues.property_table import ABSENT, VALUE_BYTES_MAX, PropertyTable
from twinlog.wire.properties import NAME_END, PAIR_END

MayMatch = Callable[[PropertyTable], np.ndarray]

_COMPARISONS_MAX = 16  # each looks at the whole table
_DIGITS_MAX = 9
_FEW = 4  # no other part is looked at once less than a quarter of the messages are left
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def first_look(node: Node) -> MayMatch | None:
    """The function that returns which messages the expression may select; None if it could refuse nothing."""
    return _look(node) if _comparisons(node) <= _COMPARISONS_MAX else None


def _comparisons(node: Node) -> int:
    if node.form is Form.IN:
        return len(node.detail[0])
    return 1 if node.form not in (Form.ALL, Form.ANY) else sum(map(_comparisons, node.parts))


def _look(node: Node) -> MayMatch | None:
    match node.form:
        case Form.ALL:
            looks = [look for part in node.parts if (look := _look(part)) is not None]
            return _all_of(looks) if looks else None
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


def _all_of(looks: list[MayMatch]) -> MayMatch:
    def may_match(table: PropertyTable) -> np.ndarray:
        left = looks[0](table)
        for look in looks[1:]:
            if np.count_nonzero(left) * _FEW < len(left):
                break
            left &= look(table)
        return left

    return may_match


def _any_of(looks: list[MayMatch]) -> MayMatch:
    return lambda table: np.logical_or.reduce([look(table) for look in looks])


def _comparison(node: Node) -> MayMatch | None:
    left, right = node.parts
    if left.form is not Form.PROPERTY or right.form is not Form.VALUE or not right.is_constant:
        return None
    if right.kind is Kind.TEXT and node.form is Form.EQUAL:
        return _texts(left, [right.value])
    if right.kind in (Kind.INT, Kind.LONG):
        return _number(left, operator.eq if node.form is Form.EQUAL else _SIGNS[node.detail[1]], right.value)
    return None


def _texts(left: Node, words: list[str]) -> MayMatch | None:
    """A property that is one of these texts."""
    encoded = [exact_bytes(word) for word in words]
    if not all(word is not None and len(word) < VALUE_BYTES_MAX for word in encoded):
        return None
    start, sought = _start(left), [np.frombuffer(f"{word}{PAIR_END}".encode(), np.uint8) for word in words]

    def may_match(table: PropertyTable) -> np.ndarray:
        values = table.values_at(start)
        may = values < ABSENT
        (rows,) = (values >= 0).nonzero()
        cells, values = table.cells, values[rows]
        for word in sought:
            places, at = values, rows
            for number, byte in enumerate(word):  # most differ early
                same = cells[places + number] == byte
                places, at = places[same], at[same]
            may[at] = True
        return may | ~table.fits

    return may_match


def _number(left: Node, compare: Callable[[np.ndarray, int], np.ndarray], wanted: int) -> MayMatch:
    """A property that is a whole number and compares so with `wanted`; what has other characters may be one, too."""
    start = _start(left)

    def may_match(table: PropertyTable) -> np.ndarray:
        values = table.values_at(start)
        may = values < ABSENT
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
        may[rows] = compare(numbers, wanted) | ~is_plain
        return may | ~table.fits

    return may_match


def _start(node: Node) -> bytes:
    return f"{PAIR_END}{node.name}{NAME_END}".encode()
