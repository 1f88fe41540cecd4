"""Custom headers: dataclasses to and from the text map that a command carries.

A field's name on the wire is its Python name in camelCase, or `wire("name")`. Reading is as lenient
as Java's: a missing or unparseable value (a number too large for its type, too) is None or the field's default,
never an error here.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any

from twinlog.wire.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Int, Long

T = typing.TypeVar("T")


def wire(name: str, default: Any = dataclasses.MISSING) -> Any:
    """A header field that is called `name` on the wire."""
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"wire": name})
    return dataclasses.field(default=default, metadata={"wire": name})


def decode_fields(cls: type[T], fields: dict[str, str] | None) -> T:
    """A `cls` filled from `fields`; what is absent or unreadable stays at its default, else None."""
    values: dict[str, Any] = {}
    for attribute, name, read, _ in _plan(cls):
        text = fields.get(name) if fields else None
        value = read(text) if text is not None else None
        if value is not None:
            values[attribute] = value
        elif attribute in _required(cls):
            values[attribute] = None
    return cls(**values)


def encode_fields(header: object) -> dict[str, str]:
    """The text map of `header`; None members are left out, as Java does."""
    result: dict[str, str] = {}
    for attribute, name, _, write in _plan(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            result[name] = write(value)
    return result


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def read_int(text: str) -> int | None:
    """A number of 32 bits; None when `text` is not one."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if INT_MIN <= number <= INT_MAX else None


def _long(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if LONG_MIN <= number <= LONG_MAX else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _boolean(text: str) -> bool:
    return text.lower() == "true"  # Java: everything else is false, "1" too


def _text(value: object) -> str:
    return str(value)


_READERS: dict[Any, Callable[[str], Any]] = {
    Int: read_int,
    Long: _long,
    int: _long,
    float: _number,
    bool: _boolean,
    str: str,
}
_WRITERS: dict[type, Callable[[Any], str]] = {bool: lambda value: "true" if value else "false"}


@functools.cache
def _plan(cls: type) -> tuple[tuple[str, str, Callable[[str], Any], Callable[[Any], str]], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    plan: list[tuple[str, str, Callable[[str], Any], Callable[[Any], str]]] = []
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        name = field.metadata.get("wire") or camel(field.name)
        plan.append((field.name, name, _READERS[kind], _WRITERS.get(kind, _text)))
    return tuple(plan)


@functools.cache
def _required(cls: type) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing)
