"""The values and operators that a SQL92 expression is made of, each a function of a message's properties.

These functions define what an expression means. `property_code` makes faster code of the same tree, for which each node
keeps its operator (`form`) and its parts.

An operator that cannot work (an order between booleans, a NULL on one side of `=`) is refused when the expression is
built. What depends on the message (text where a number should be) is decided by Java's rules in `java_compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from twinlog.broker.pulls.filters.java_compare import NUMBERS, Kind, comparison, text_order

DEPTH_MAX = 100

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]

ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


class FilterSyntaxError(Exception):
    """An invalid expression; the text goes to the client."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Invalid MessageSelector. {why}")


class Form(Enum):
    """The operator of a node; `detail` of the node has what else it needs."""

    PROPERTY = auto()
    VALUE = auto()  # the same for each message
    AS_BOOLEAN = auto()
    NOT = auto()
    ALL = auto()
    ANY = auto()
    IS_NULL = auto()
    EQUAL = auto()  # detail: the comparison
    ORDERED = auto()  # detail: the comparison and the sign
    IN = auto()  # detail: the words, negated
    TEXT_TEST = auto()  # detail: the test, what is searched for, negated


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    evaluate: Evaluate
    form: Form
    parts: tuple[Node, ...] = ()
    detail: tuple[Any, ...] = ()
    is_constant: bool = False
    value: Any = None  # of a constant
    name: str | None = None  # of a property
    depth: int = 1

    def __str__(self) -> str:
        return self.name or (str(self.value) if self.is_constant else f"a {self.kind.value} expression")


def prop(name: str) -> Node:
    """A message property: text, or None when the message lacks it."""
    return Node(Kind.TEXT, lambda properties: properties.get(name), Form.PROPERTY, name=name)


def literal(kind: str, word: str) -> Node:
    if kind == "text":
        return _constant(Kind.TEXT, word)
    if kind == "integer":
        digits = word.rstrip("lL")
        if len(digits) > 19 or int(digits) >= 2**63:
            raise FilterSyntaxError(f"{digits[:40]} does not fit 64 bits")
        return _constant(Kind.INT if int(digits) < 2**31 else Kind.LONG, int(digits))
    if kind == "double":
        value = float(word)
        if value == 0 or value == float("inf"):  # Java: a literal zero is below the smallest double it takes
            raise FilterSyntaxError(f"{word[:40]} is outside the range of a double")
        return _constant(Kind.DOUBLE, value)
    if kind == "keyword" and word in ("TRUE", "FALSE", "NULL"):
        return _constant(Kind.BOOLEAN, {"TRUE": True, "FALSE": False, "NULL": None}[word])
    raise FilterSyntaxError(f"A value expected, found {word!r}")


def _constant(kind: Kind, value: Any) -> Node:
    return Node(kind, lambda properties: value, Form.VALUE, is_constant=True, value=value)


def boolean(form: Form, evaluate: Evaluate, *parts: Node, detail: tuple[Any, ...] = ()) -> Node:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise FilterSyntaxError(f"It is nested deeper than {DEPTH_MAX}")
    return Node(Kind.BOOLEAN, evaluate, form, parts, detail, depth=depth)


def as_boolean(node: Node) -> Node:
    if node.kind is Kind.BOOLEAN:
        return node
    if node.name is not None:
        evaluate = node.evaluate
        # Java: a property is text and never a boolean, even "true".
        return boolean(Form.AS_BOOLEAN, lambda properties: None if evaluate(properties) is None else False, node)
    raise FilterSyntaxError(f"Expression will not result in a boolean value: {node}")


def negation(node: Node) -> Node:
    evaluate = node.evaluate

    def negated(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return boolean(Form.NOT, negated, node)


def negative(node: Node) -> Node:
    evaluate, numeric = node.evaluate, node.kind in NUMBERS
    depth = node.depth + 1
    if depth > DEPTH_MAX:
        raise FilterSyntaxError(f"It is nested deeper than {DEPTH_MAX}")
    if not numeric:
        return Node(Kind.NOTHING, lambda properties: None, Form.VALUE, depth=depth)
    return Node(node.kind, lambda properties: -evaluate(properties), Form.VALUE, depth=depth)


def all_true(nodes: list[Node]) -> Node:
    return boolean(Form.ALL, _first_decides([node.evaluate for node in nodes], decisive=False), *nodes)


def any_true(nodes: list[Node]) -> Node:
    return boolean(Form.ANY, _first_decides([node.evaluate for node in nodes], decisive=True), *nodes)


def _first_decides(parts: list[Evaluate], *, decisive: bool) -> Evaluate:
    """The `decisive` value of one part is the result; without it, one unknown part makes the result unknown."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            value = part(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def is_null(node: Node) -> Node:
    evaluate = node.evaluate
    return boolean(Form.IS_NULL, lambda properties: evaluate(properties) is None, node)


def equal(left: Node, right: Node) -> Node:
    for side in (left, right):
        if side.is_constant and side.value is None:
            raise FilterSyntaxError("'NULL' cannot be compared; write IS NULL")
    if left.is_constant and right.is_constant and left.kind is Kind.BOOLEAN and right.kind is not Kind.BOOLEAN:
        raise FilterSyntaxError(f"'{left}' cannot be compared with '{right}'")
    compare, of_left, of_right = comparison(left.kind, right.kind), left.evaluate, right.evaluate

    def equal(properties: Properties) -> bool | None:
        a, b = of_left(properties), of_right(properties)
        if a is None or b is None:
            # Java: two missing values are equal, only the left one missing is unknown, only the right one is unequal.
            return True if a is b else (None if a is None else False)
        return compare(a, b) == 0

    return boolean(Form.EQUAL, equal, left, right, detail=(compare,))


def ordered(left: Node, word: str, right: Node) -> Node:
    for side in (left, right):
        if side.kind is Kind.BOOLEAN or (side.is_constant and side.kind not in NUMBERS):
            raise FilterSyntaxError(f"Value '{side}' cannot be compared.")
    test, of_left, of_right = ORDERS[word], left.evaluate, right.evaluate
    both_text = left.kind is Kind.TEXT and right.kind is Kind.TEXT
    compare = text_order if both_text else comparison(left.kind, right.kind)

    def ordered(properties: Properties) -> bool | None:
        a = of_left(properties)
        if a is None:
            return None
        b = of_right(properties)
        return None if b is None else test(compare(a, b))

    return boolean(Form.ORDERED, ordered, left, right, detail=(compare, word))


def between(value: Node, low: Node, high: Node, negated: bool) -> Node:
    if negated:
        return any_true([ordered(value, "<", low), ordered(value, ">", high)])
    parts = [ordered(value, ">=", low), ordered(value, "<=", high)]
    if low.is_constant and high.is_constant and comparison(high.kind, low.kind)(high.value, low.value) < 0:
        raise FilterSyntaxError(
            f"Illegal values of between, left value({low}) must less than or equal to right value({high})"
        )
    return all_true(parts)


def in_set(left: Node, words: frozenset[str], negated: bool) -> Node:
    name = left.name
    if name is None:
        raise FilterSyntaxError(f"Expected a property for In expression, got: {left}")

    def in_set(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in words) is not negated

    return boolean(Form.IN, in_set, left, detail=(words, negated))


def text_test(left: Node, test: Callable[[str, str], bool], search: str, negated: bool) -> Node:
    evaluate, is_text = left.evaluate, left.kind is Kind.TEXT

    def text_test(properties: Properties) -> bool:
        value = evaluate(properties)
        # Java: a missing value fails the test and the negated test alike, and so does an empty search.
        return bool(is_text and search and value is not None and test(value, search) is not negated)

    return boolean(Form.TEXT_TEST, text_test, left, detail=(test, search, negated))
