"""Types of columns: the text of Spark's DDL on one side, Arrow's types on the other.

id bigint, `order no` string, items array<struct<sku:string,count:int>>, paid decimal(10,2) COMMENT 'in euro'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinlog.spark.errors import BadSchema, nearest

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|([A-Za-z0-9_]+)|([<>(),:])|(\S))")
_SIMPLE = {
    "boolean": "boolean",
    # The table formats have no common smaller integer than this.
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), "int"),
    **dict.fromkeys(("bigint", "long"), "bigint"),
    **dict.fromkeys(("float", "real"), "float"),
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp"),
    "timestamp_ntz": "timestamp_ntz",
}
_NESTED = ("array", "map", "struct", "decimal", "dec", "numeric")
DECIMAL_DIGITS_MAX = 38


def column_types(text: str) -> dict[str, pa.DataType]:
    """The columns of a DDL text; BadSchema names the place that is wrong."""
    words = _Words(text)
    found: dict[str, pa.DataType] = {}
    while True:
        name, kind = words.column()
        if name in found:
            raise BadSchema(f"the schema {text.strip()!r} has the column {name!r} twice: name each column once")
        found[name] = kind
        if words.is_over():
            return found
        words.expect(",")


@functools.lru_cache(256)
def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of one DDL type."""
    words = _Words(text)
    kind = words.kind()
    if not words.is_over():
        raise words.wrong("the end")
    return kind


def type_text(kind: pa.DataType) -> str:
    """The DDL text of an Arrow type, in the form that `arrow_type` reads."""
    import pyarrow as pa

    for text, known in _arrow_types().items():
        if known.equals(kind):
            return text
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    assert pa.types.is_struct(kind), kind
    inside = ",".join(f"{quoted(field.name)}:{type_text(field.type)}" for field in kind)
    return f"struct<{inside}>"


def quoted(name: str) -> str:
    """A name as DDL needs it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


@functools.cache
def _arrow_types() -> dict[str, pa.DataType]:
    import pyarrow as pa  # not at the top: Spark imports all sources to read their names

    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
        "float": pa.float32(),
        "double": pa.float64(),
    }


class _Words:
    """The tokens of a text, read from the front."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(_tokens(text))
        self._next = 0

    def is_over(self) -> bool:
        return self._next >= len(self._words)

    def wrong(self, expected: str) -> BadSchema:
        found = "the end" if self.is_over() else repr(self._words[self._next][1])
        hint = "write columns as: id bigint, name string, items array<struct<sku:string,count:int>>"
        return BadSchema(f"the schema {self._text.strip()!r} has {found} where {expected} is expected: {hint}")

    def expect(self, sign: str) -> None:
        if self._peek() != ("sign", sign):
            raise self.wrong(repr(sign))
        self._next += 1

    def column(self) -> tuple[str, pa.DataType]:
        name = self._name()
        if self._peek() == ("sign", ":"):
            self._next += 1
        kind = self.kind()
        if self._is_word("not"):
            self._next += 1
            if not self._is_word("null"):
                raise self.wrong("NULL")
            self._next += 1  # a missing value is null whatever was declared, so this changes nothing
        if self._is_word("comment"):
            self._next += 1
            if self._peek()[0] != "text":
                raise self.wrong("a text in quotes")
            self._next += 1
        return name, kind

    def kind(self) -> pa.DataType:
        import pyarrow as pa

        what, word = self._peek()
        if what != "word":
            raise self.wrong("a type")
        name = word.lower()
        if name in _SIMPLE:
            self._next += 1
            return _arrow_types()[_SIMPLE[name]]
        if name not in _NESTED:
            raise BadSchema(f"there is no type {word!r}: {nearest(word, (*_SIMPLE, *_NESTED))}")
        self._next += 1
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        self.expect("<")
        if name == "array":
            made = pa.list_(self.kind())
        elif name == "map":
            key = self.kind()
            self.expect(",")
            made = pa.map_(key, self.kind())
        else:
            made = pa.struct(list(self._fields()))
        self.expect(">")
        return made

    def _fields(self) -> Iterator[pa.Field]:
        import pyarrow as pa

        while True:
            name, kind = self.column()
            yield pa.field(name, kind)
            if self._peek() != ("sign", ","):
                return
            self._next += 1

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        digits, scale = 10, 0
        if self._peek() == ("sign", "("):
            self._next += 1
            digits = self._number()
            if self._peek() == ("sign", ","):
                self._next += 1
                scale = self._number()
            self.expect(")")
        if not (1 <= digits <= DECIMAL_DIGITS_MAX and scale <= digits):
            raise BadSchema(f"decimal({digits},{scale}) is not a type: 1 to {DECIMAL_DIGITS_MAX} digits, scale within")
        return pa.decimal128(digits, scale)

    def _number(self) -> int:
        what, word = self._peek()
        if what != "word" or not word.isdigit():
            raise self.wrong("a number")
        self._next += 1
        return int(word)

    def _name(self) -> str:
        what, word = self._peek()
        if what not in ("word", "name"):
            raise self.wrong("the name of a column")
        self._next += 1
        return word

    def _is_word(self, word: str) -> bool:
        return self._peek()[0] == "word" and self._peek()[1].lower() == word

    def _peek(self) -> tuple[str, str]:
        return ("end", "") if self.is_over() else self._words[self._next]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for name, comment, word, sign, other in _TOKEN.findall(text):
        if name:
            yield "name", name.replace("``", "`")
        elif word:
            yield "word", word
        elif sign or other:
            yield "sign", sign or other
        else:
            yield "text", comment
