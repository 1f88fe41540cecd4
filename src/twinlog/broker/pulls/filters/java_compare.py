"""How Java's property filter compares two values, decided once, when an expression is compiled.

A value's kind never changes at run time: a property is text, a literal has the kind it is written in, and a negated
property is always null. So each pair of kinds has one comparison. Text that should be a number and is not raises
UnequalKinds, and the whole expression then matches nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

Compare = Callable[[Any, Any], int]


class Kind(Enum):
    TEXT = "text"
    BOOLEAN = "boolean"
    INT = "32-bit integer"
    LONG = "64-bit integer"
    DOUBLE = "double"
    NOTHING = "nothing"  # always null


class UnequalKinds(Exception):
    """Two values that Java cannot compare."""


NUMBERS = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})
_INT_RANGE = range(-(2**31), 2**31)
_LONG_RANGE = range(-(2**63), 2**63)
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_NAMED = {"NaN": math.nan, "Infinity": math.inf}
_JAVA_SPACE = "".join(map(chr, range(0x21)))


def comparison(left: Kind, right: Kind) -> Compare:
    """The function that orders a value of kind `left` against one of kind `right`: negative, zero or positive."""
    if left is right and left is not Kind.DOUBLE:
        return _order
    kinds = {left, right}
    if kinds <= NUMBERS:
        return _double_order if Kind.DOUBLE in kinds else _order
    if left is Kind.TEXT and right in _PARSERS:
        parse, order = _PARSERS[right], _double_order if right is Kind.DOUBLE else _order
        return lambda a, b: order(parse(a), b)
    if right is Kind.TEXT and left in NUMBERS:
        parse, order = _PARSERS[left], _double_order if left is Kind.DOUBLE else _order
        return lambda a, b: order(a, parse(b))
    if left is Kind.BOOLEAN and right is Kind.TEXT:
        return _cannot  # Java: converts the wrong side, and fails on it
    return lambda a, b: -1


def text_order(left: str, right: str) -> int:
    """The order of two properties for `<`, `<=`, `>` and `>=`: both are read as doubles."""
    return _double_order(java_double(left), java_double(right))


def java_int(text: str) -> int:
    return _integer(text, _INT_RANGE)


def java_long(text: str) -> int:
    return _integer(text, _LONG_RANGE)


def java_boolean(text: str) -> bool:
    return text.lower() == "true"


def java_double(text: str) -> float:
    """The number Java's Double.valueOf reads: surrounding blanks, `1f`, `NaN` and hexadecimal included."""
    word = text.strip(_JAVA_SPACE)
    if _DECIMAL.fullmatch(word):
        return float(word.rstrip("fFdD"))
    unsigned = word.lstrip("+-") if word[:1] in ("+", "-") and word[1:2] not in ("+", "-") else word
    if unsigned in _NAMED:
        return -_NAMED[unsigned] if word[0] == "-" else _NAMED[unsigned]
    if _HEXADECIMAL.fullmatch(word):
        mantissa, _, exponent = word.lower().partition("p")
        try:
            return float.fromhex(f"{mantissa}p{exponent.rstrip('fd')}")
        except OverflowError:
            return -math.inf if word[0] == "-" else math.inf
    raise UnequalKinds(f"{text[:80]!r} is not a number")


def _integer(text: str, allowed: range) -> int:
    if not _INTEGER.fullmatch(text) or (value := int(text)) not in allowed:
        raise UnequalKinds(f"{text[:80]!r} is not an integer of that size")
    return value


def _order(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


def _double_order(a: float, b: float) -> int:
    """Java's order of doubles: NaN is equal to itself and above all, and -0.0 is below 0.0."""
    a, b = float(a), float(b)
    if a != a or b != b:
        return (a != a) - (b != b)
    if a == b == 0:
        return _order(math.copysign(1, a), math.copysign(1, b))
    return _order(a, b)


def _cannot(a: Any, b: Any) -> int:
    raise UnequalKinds(f"a boolean on the left cannot be compared with the text {b[:80]!r}")


_PARSERS: dict[Kind, Callable[[str], Any]] = {
    Kind.INT: java_int,
    Kind.LONG: java_long,
    Kind.DOUBLE: java_double,
    Kind.BOOLEAN: java_boolean,
}
