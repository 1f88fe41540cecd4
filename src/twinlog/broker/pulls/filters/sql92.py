"""SQL92 subscriptions: an expression over message properties becomes a function.

    or         := and ("OR" and)*
    and        := equality ("AND" equality)*
    equality   := comparison (("=" | "<>") comparison | "IS" ["NOT"] "NULL")*
    comparison := unary ((">" | ">=" | "<" | "<=") unary | ["NOT"] "BETWEEN" unary "AND" unary
                         | ["NOT"] "IN" "(" text ("," text)* ")"
                         | ["NOT"] ("CONTAINS" | "STARTSWITH" | "ENDSWITH") text)*
    unary      := ("+" | "-" | "NOT") unary | literal | property | "(" or ")"

Logic has three values: a comparison with a property that the message lacks is None, "unknown", and only True
selects a message. The parser accepts what Java's accepts: NOT binds tighter than `=`, and text after a complete
expression is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from twinlog.broker.pulls.filters.expressions import (
    DEPTH_MAX,
    ORDERS,
    Evaluate,
    FilterSyntaxError,
    Node,
    Properties,
    all_true,
    any_true,
    as_boolean,
    between,
    equal,
    in_set,
    is_null,
    literal,
    negation,
    negative,
    ordered,
    prop,
    text_test,
)
from twinlog.broker.pulls.filters.java_compare import UnequalKinds
from twinlog.broker.pulls.filters.property_blocks import LookAt, first_look
from twinlog.broker.pulls.filters.property_code import MatchesText, matcher

EXPRESSION_CHARS_MAX = 65_536

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<double>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<integer>0|[1-9][0-9]*[lL]?)
    |(?P<text>'(?:''|[^'])*')
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>(),+-])""",
    re.VERBOSE,
)
_KEYWORDS = frozenset("NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split())
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, search: search in value,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """A compiled expression."""

    expression: str
    evaluate: Evaluate  # True, False or None; raises UnequalKinds
    matches_text: MatchesText  # as `matches`, for properties in text form
    look_at: LookAt | None = None  # the messages of a table that it selects or may select

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is selected; an error of evaluation selects nothing."""
        try:
            return self.evaluate(properties) is True
        except UnequalKinds:
            return False


@lru_cache(maxsize=256)
def compile_sql92(expression: str) -> PropertyFilter:
    """The filter that `expression` describes, or FilterSyntaxError."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise FilterSyntaxError(f"It has {len(expression)} characters, at most {EXPRESSION_CHARS_MAX} are taken")
    node = as_boolean(_Parser(expression).disjunction(0))
    return PropertyFilter(expression, node.evaluate, matcher(node), first_look(node))


class _Parser:
    """Reads one token ahead, two where NOT or IS need it."""

    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression)
        self._ahead: list[tuple[str, str]] = []

    def disjunction(self, depth: int) -> Node:
        return self._chain("OR", self._conjunction, any_true, depth)

    def _conjunction(self, depth: int) -> Node:
        return self._chain("AND", self._equality, all_true, depth)

    def _chain(self, word: str, part: Callable[[int], Node], combine: Callable[[list[Node]], Node], depth: int) -> Node:
        first = part(depth)
        if self._peek() != word:
            return first
        # One flat list for the whole chain: evaluation must not nest deeper than the text does.
        parts = [as_boolean(first)]
        while self._peek() == word:
            self._take()
            parts.append(as_boolean(part(depth)))
        return combine(parts)

    def _equality(self, depth: int) -> Node:
        left = self._comparison(depth)
        while (word := self._peek()) in ("=", "<>", "IS"):
            self._take()
            if word == "IS":
                negated = self._peek() == "NOT"
                if negated:
                    self._take()
                self._expect("NULL")
                left = is_null(left)
            else:
                negated = word == "<>"
                left = equal(left, self._comparison(depth))
            left = negation(left) if negated else left
        return left

    def _comparison(self, depth: int) -> Node:
        left = self._unary(depth)
        while True:
            word = self._peek()
            negated = word == "NOT"
            if negated:
                word = self._peek(1)
            if word in ORDERS and not negated:
                self._take()
                left = ordered(left, word, self._unary(depth))
            elif word in ("BETWEEN", "IN", *_TEXT_TESTS):
                self._take(2 if negated else 1)
                left = self._range_or_set(left, word, negated, depth)
            elif negated:
                raise FilterSyntaxError(f"NOT cannot stand before {word!r} here")
            else:
                return left

    def _range_or_set(self, left: Node, word: str, negated: bool, depth: int) -> Node:
        if word == "BETWEEN":
            low = self._unary(depth)
            self._expect("AND")
            return between(left, low, self._unary(depth), negated)
        if word == "IN":
            self._expect("(")
            words = [self._text()]
            while self._peek() == ",":
                self._take()
                words.append(self._text())
            self._expect(")")
            return in_set(left, frozenset(words), negated)
        return text_test(left, _TEXT_TESTS[word], self._text(), negated)

    def _unary(self, depth: int) -> Node:
        if depth >= DEPTH_MAX:
            raise FilterSyntaxError(f"It is nested deeper than {DEPTH_MAX}")
        kind, word = self._take()
        if word == "+" and kind == "sign":
            return self._unary(depth + 1)
        if word == "-" and kind == "sign":
            return negative(self._unary(depth + 1))
        if kind == "keyword" and word == "NOT":
            return negation(as_boolean(self._unary(depth + 1)))
        if word == "(" and kind == "sign":
            inner = self.disjunction(depth + 1)
            self._expect(")")
            return inner
        if kind == "name":
            return prop(word)
        return literal(kind, word)

    def _text(self) -> str:
        kind, word = self._take()
        if kind != "text":
            raise FilterSyntaxError(f"A text in single quotes expected, found {word!r}")
        return word

    def _peek(self, ahead: int = 0) -> str:
        """The keyword or sign that comes next; an empty text for any other token."""
        while len(self._ahead) <= ahead:
            self._ahead.append(next(self._tokens))
        kind, word = self._ahead[ahead]
        return word if kind in ("keyword", "sign") else ""

    def _take(self, count: int = 1) -> tuple[str, str]:
        self._peek(count - 1)
        token = self._ahead[count - 1]
        del self._ahead[:count]
        return token

    def _expect(self, wanted: str) -> None:
        kind, word = self._take()
        if word != wanted or kind not in ("keyword", "sign"):
            raise FilterSyntaxError(f"{wanted} expected, found {word!r}")


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token, made on demand: Java does not read past a complete expression."""
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise FilterSyntaxError(f"Unexpected {expression[at : at + 10]!r} at character {at}")
        at, kind, word = match.end(), match.lastgroup or "", match[0]
        if kind == "skip":
            continue
        if kind == "name" and word.upper() in _KEYWORDS:
            kind, word = "keyword", word.upper()
        elif kind == "text":
            word = word[1:-1].replace("''", "'")
        yield kind, word
    while True:
        yield "end", "the end of the expression"
