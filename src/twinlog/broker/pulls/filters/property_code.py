"""A SQL92 expression as Python code that runs on the text form of a message's properties.

What it trades: `Node.evaluate` defines an expression, on properties that are all decoded. This code finds only those
that the expression names, in the bytes of the record, and compares most of them undecoded. A property test holds both
equal. For `price > 10 AND region = 'eu'` it is, without the last branches of each search:

    def matches(text):
        at = text.rfind(b"\\x02price\\x01")
        ...                                                          # p0 is the value's bytes, or None
        x1 = None if p0 is None else (int(p0) if p0.isdigit() and len(p0) < 10 else parse(p0)) > c1
        if x1 is not True: return False
        at = text.rfind(b"\\x02region\\x01")
        ...
        x2 = None if p1 is None else p1 == c2
        return x2 is True

Nothing of the expression is part of the code but its operators: names and literals are objects that the code refers to.
A part whose value cannot change the result any more is not evaluated, exactly as in the definition: a value that Java
cannot compare makes the whole expression match nothing, so it matters which parts are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinlog.broker.pulls.filters.expressions import Form, Node
from twinlog.broker.pulls.filters.java_compare import Kind, UnequalKinds, java_int, java_long
from twinlog.wire.properties import NAME_END, PAIR_END, decode_properties

MatchesText = Callable[[bytes], bool]

NODES_MAX = 200  # compiling more would take tens of milliseconds
_NESTING_MAX = 12  # CPython takes at most 20 blocks inside each other
_SAFE_DIGITS = {Kind.INT: 9, Kind.LONG: 18}  # so many always fit
_PARSERS = {Kind.INT: java_int, Kind.LONG: java_long}


def matcher(node: Node) -> MatchesText:
    """The function that returns whether a message with these properties, in text form, is selected."""
    if _is_large(node):
        return _decoding(node)
    return _Writer().function(node)


def _decoding(node: Node) -> MatchesText:
    """The definition: decodes everything first."""

    def matches(text: bytes) -> bool:
        try:
            return node.evaluate(decode_properties(text)) is True
        except UnequalKinds:
            return False

    return matches


def _is_large(node: Node) -> bool:
    nodes, count = [(node, 0)], 0
    while nodes:
        one, nesting = nodes.pop()
        count += 1
        if count > NODES_MAX or nesting > _NESTING_MAX:
            return True
        nodes += ((part, nesting + (one.form in (Form.ALL, Form.ANY))) for part in one.parts)
    return False


class _Writer:
    """Writes the lines of one function. Each `_value` writes lines, and returns the name of their result."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indent = 2
        self._objects: dict[str, Any] = {"UnequalKinds": UnequalKinds, "search": _search}
        self._found: dict[str, str] = {}  # property -> the variable that has its bytes, as far as it is surely set
        self._count = 0

    def function(self, node: Node) -> MatchesText:
        # An AND decides everything, so the first part that is not true ends it.
        parts = node.parts if node.form is Form.ALL else (node,)
        for part in parts[:-1]:
            self._line(f"if {self._value(part)} is not True: return False")
        self._line(f"return {self._value(parts[-1])} is True")
        body = "\n".join(self._lines)
        source = f"def matches(text):\n try:\n{body}\n except UnequalKinds: return False\n"
        # The source has no text of the expression, only operators and names of objects.
        exec(compile(source, "<property filter>", "exec"), self._objects)
        return self._objects["matches"]

    # -- values: True, False or None for logic, else what the definition's `evaluate` returns ------

    def _value(self, node: Node) -> str:
        match node.form:
            case Form.VALUE:
                return self._object(node.evaluate({}))
            case Form.PROPERTY:
                raw = self._bytes_of(node)
                return self._set(f"None if {raw} is None else {raw}.decode('utf-8', 'replace')")
            case Form.AS_BOOLEAN:
                return self._set(f"None if {self._presence(node.parts[0])} is None else False")
            case Form.NOT:
                inner = self._value(node.parts[0])
                return self._set(f"None if {inner} is None else not {inner}")
            case Form.ALL | Form.ANY:
                return self._chain(node)
            case Form.IS_NULL:
                return self._set(f"{self._presence(node.parts[0])} is None")
            case Form.EQUAL:
                return self._equal(node)
            case Form.ORDERED:
                return self._ordered(node)
            case Form.IN:
                return self._in(node)
            case Form.TEXT_TEST:
                return self._text_test(node)

    def _chain(self, node: Node) -> str:
        """AND or OR inside an expression: the first part that has the decisive value ends it."""
        decisive = node.form is Form.ANY
        result = self._set(self._value(node.parts[0]))
        self._line(f"while {result} is not {decisive}:")
        found = dict(self._found)
        self._indent += 1
        for part in node.parts[1:]:
            value = self._value(part)
            self._line(f"if {value} is {decisive}: {result} = {decisive}; break")
            self._line(f"if {value} is None: {result} = None")
        self._line("break")
        self._indent -= 1
        self._found = found
        return result

    def _equal(self, node: Node) -> str:
        left, right = node.parts
        if left.form is Form.PROPERTY and right.form is Form.VALUE:
            value = right.evaluate({})
            if right.kind is Kind.TEXT and (encoded := exact_bytes(value)) is not None:
                raw = self._bytes_of(left)
                return self._set(f"None if {raw} is None else {raw} == {self._object(encoded)}")
            if right.kind in _SAFE_DIGITS:
                raw = self._bytes_of(left)
                number = self._number(raw, right.kind)
                return self._set(f"None if {raw} is None else {number} == {self._object(value)}")
        compare, a, b = self._object(node.detail[0]), self._value(left), self._value(right)
        return self._set(
            f"{compare}({a}, {b}) == 0 if {a} is not None is not {b} else "
            f"(True if {a} is {b} else None if {a} is None else False)"
        )

    def _ordered(self, node: Node) -> str:
        (left, right), (compare, sign) = node.parts, node.detail
        if left.form is Form.PROPERTY and right.form is Form.VALUE and right.kind in _SAFE_DIGITS:
            raw, value = self._bytes_of(left), right.evaluate({})
            return self._set(f"None if {raw} is None else {self._number(raw, right.kind)} {sign} {self._object(value)}")
        a, b = self._value(left), self._value(right)
        return self._set(f"None if {a} is None or {b} is None else {self._object(compare)}({a}, {b}) {sign} 0")

    def _in(self, node: Node) -> str:
        words, negated = node.detail
        operator = "not in" if negated else "in"
        encoded = frozenset(map(exact_bytes, words))
        if None not in encoded:
            raw = self._bytes_of(node.parts[0])
            return self._set(f"None if {raw} is None else {raw} {operator} {self._object(encoded)}")
        text = self._value(node.parts[0])
        return self._set(f"None if {text} is None else {text} {operator} {self._object(words)}")

    def _text_test(self, node: Node) -> str:
        (left,), (test, search, negated) = node.parts, node.detail
        value = self._value(left)
        if left.kind is not Kind.TEXT or not search:
            return self._object(False)
        call = f"{self._object(test)}({value}, {self._object(search)})"
        return self._set(f"{value} is not None and {call} is {not negated}")

    # -- properties --------------------------------------------------------------------------------

    def _presence(self, node: Node) -> str:
        return self._bytes_of(node) if node.form is Form.PROPERTY else self._value(node)

    def _bytes_of(self, node: Node) -> str:
        """The variable with the bytes of a property, None if the message lacks it; `decode` makes its text of them."""
        name = node.name
        assert name is not None, "a property has a name"
        if name in self._found:
            return self._found[name]
        raw, wanted = self._new(), self._object(name)
        first, later = self._object(f"{name}{NAME_END}".encode()), self._object(f"{PAIR_END}{name}{NAME_END}".encode())
        size = len(name) + 2
        self._line(f"at = text.rfind({later})")  # the last pair of a name counts
        self._line(f"if at < 0 and not text.startswith({first}): {raw} = None")
        self._line("else:")  # `at` is -1 for the first pair, where its separator would be
        self._line(f" end = text.find({PAIR_END.encode()!r}, at + {size})")
        self._line(f" {raw} = text[at + {size}:end] if end >= 0 else text[at + {size}:]")
        self._line(f" if not {raw}: {raw} = search(text, {wanted})")  # without a value: another pair may count
        self._found[name] = raw
        return raw

    def _number(self, raw: str, kind: Kind) -> str:
        parse, digits_max = self._object(_PARSERS[kind]), _SAFE_DIGITS[kind]
        parsed = f"{parse}({raw}.decode('utf-8', 'replace'))"
        return f"(int({raw}) if {raw}.isdigit() and len({raw}) <= {digits_max} else {parsed})"

    # -- lines -------------------------------------------------------------------------------------

    def _object(self, value: Any) -> str:
        name = f"c{len(self._objects)}"
        self._objects[name] = value
        return name

    def _set(self, code: str) -> str:
        name = self._new()
        self._line(f"{name} = {code}")
        return name

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _line(self, code: str) -> None:
        self._lines.append(" " * self._indent + code)


def _search(text: bytes, name: str) -> bytes | None:
    value = decode_properties(text).get(name)
    return None if value is None else value.encode()


def exact_bytes(text: str) -> bytes | None:
    """The bytes that are equal to a property's if and only if the texts are; None when no bytes are.

    Bytes that are not UTF-8 are read as U+FFFD, so many different bytes are equal to a text with that character.
    """
    try:
        return text.encode() if "\ufffd" not in text else None
    except UnicodeEncodeError:
        return None
