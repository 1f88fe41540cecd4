"""How a settings dataclass names its keys in the file, and how a file becomes such a dataclass.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ReplicationSettings:
        heartbeat_ms: int = conf("haSendHeartbeatInterval", 5_000, minimum=1)

The annotation decides how the text is read: int, float, bool, str, a Literal of words, or one of these `| None`.
A value that cannot be read is an error that names file and line. Java would silently keep its default, and an operator
who wrote brokerRole=slave would run a second master.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from twinlog.settings.errors import SettingsError
from twinlog.settings.known_keys import JAVA_CLASSES, refusal, warning_for
from twinlog.settings.properties import Entry

S = TypeVar("S")
_MISSING: Any = object()
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """How a file spells one field, and which values it may have."""

    name: str
    old_names: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    bits: int = 32
    updatable: bool = False  # request 25 may change it while the broker runs
    check: Callable[[str], str | None] | None = None  # the problem with a text, or None
    length_min: int = 0  # a shorter text means that the value is not given


@dataclasses.dataclass(frozen=True, slots=True)
class SettingsWarning:
    source: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"{place(self.source, self.line)}: {self.message}"


def place(source: str, line: int) -> str:
    """Where a value was given; line 0 stands for what is not in the file."""
    return f"{source}:{line}" if line else "command line or environment"


def conf(
    name: str,
    default: Any = _MISSING,
    *,
    factory: Callable[[], Any] | None = None,
    old: Iterable[str] = (),
    minimum: int | None = None,
    maximum: int | None = None,
    bits: int = 32,
    updatable: bool = False,
    check: Callable[[str], str | None] | None = None,
    length_min: int = 0,
) -> Any:
    """A dataclass field that the file calls `name`."""
    metadata = {"key": Key(name, tuple(old), minimum, maximum, bits, updatable, check, length_min)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load_settings(cls: type[S], entries: Iterable[Entry], *, source: str) -> tuple[S, list[SettingsWarning]]:
    """One settings object; keys that it does not know become warnings."""
    (settings,), warnings = load_together((cls,), entries, source=source)
    return settings, warnings


def load_together(
    classes: Iterable[type],
    entries: Iterable[Entry],
    *,
    source: str,
    base: Mapping[type, Any] | None = None,
    explain: Callable[[str, Iterable[str]], str] = warning_for,
) -> tuple[tuple[Any, ...], list[SettingsWarning]]:
    """One object per class from one flat file; `base` gives the values of keys that the file leaves out.

    `explain` makes the warning about a key that nothing reads.
    """
    classes = tuple(classes)
    names = {spelling: name for cls in classes for spelling, name in spellings(cls).items()}
    values: dict[str, Entry] = {}
    warnings: list[SettingsWarning] = []
    problems: list[tuple[int, str]] = []
    for entry in entries:
        if problem := refusal(entry.key, entry.value):
            problems.append((entry.line, f"{place(source, entry.line)}: {problem}"))
        elif entry.key in JAVA_CLASSES:
            continue
        elif (name := names.get(entry.key)) is None:
            warnings.append(SettingsWarning(source, entry.line, entry.key, explain(entry.key, names)))
        else:
            if (earlier := values.get(name)) is not None:
                text = f"{_shown(entry)} replaces {_shown(earlier)} of line {earlier.line}"
                warnings.append(SettingsWarning(source, entry.line, entry.key, text))
            values[name] = entry
    loaded = [_load(cls, values, (warnings, problems), source, (base or {}).get(cls)) for cls in classes]
    if problems:
        raise SettingsError(*(text for _, text in sorted(problems)))
    return tuple(loaded), warnings


def _load(
    cls: type,
    values: Mapping[str, Entry],
    remarks: tuple[list[SettingsWarning], list[tuple[int, str]]],
    source: str,
    base: Any,
) -> Any:
    warnings, problems = remarks
    read: dict[str, Any] = {}
    for field, key, kind in keyed_fields(cls):
        if (entry := values.get(key.name)) is None:
            continue
        if len(text := entry.value.strip()) < key.length_min:
            read[field] = None
            if text:
                why = f"as in Java: it has fewer than {key.length_min} characters"
                shown = f"{entry.key}={text} counts as not given, {why}"
                warnings.append(SettingsWarning(source, entry.line, entry.key, shown))
            continue
        try:
            read[field] = read_value(key, kind, entry)
        except ValueError as problem:
            problems.append((entry.line, f"{place(source, entry.line)}: {problem}"))
    return dataclasses.replace(base, **read) if base is not None else cls(**read)


def read_value(key: Key, kind: Any, entry: Entry) -> Any:
    """The typed value of an entry; the ValueError names the problem and what would be right."""
    text = entry.value.strip()
    shown = entry.key if is_secret(key.name) else f"{entry.key}={text}"
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in arguments if one is not type(None))
        arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        if text not in arguments:
            hint = next((f"; write {word}" for word in arguments if word.lower() == text.lower()), "")
            raise ValueError(f"{shown} is not one of {', '.join(arguments)}{hint}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{shown} is neither true nor false; write one of them")
        return text.lower() == "true"
    if kind is int:
        return _read_int(key, text, shown)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{shown} is not a number; write digits with an optional decimal point") from None
    if key.check is not None and (problem := key.check(text)):
        raise ValueError(f"{shown} {problem}")
    return text


def _read_int(key: Key, text: str, shown: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{shown} is not an integer; write digits only, without a unit")
    value, limit = int(text), 1 << (key.bits - 1)
    low = max(-limit, key.minimum if key.minimum is not None else -limit)
    high = min(limit - 1, key.maximum if key.maximum is not None else limit - 1)
    if not low <= value <= high:
        raise ValueError(f"{shown} is outside {low} to {high}; choose a value in between")
    return value


def _shown(entry: Entry) -> str:
    return entry.key if is_secret(entry.key) else f"{entry.key}={entry.value}"


def effective_properties(*settings: Any) -> dict[str, str]:
    """Every key with the value in use, as text that a properties file may hold; unset values are left out."""
    values: dict[str, str] = {}
    for one in settings:
        for field, key, _ in keyed_fields(one.__class__):
            value = getattr(one, field)
            if value is not None:
                values[key.name] = str(value).lower() if isinstance(value, bool) else str(value)
    return values


_SECRET = ("password", "credentials", "secret", "initauthenticationuser")


def is_secret(name: str) -> bool:
    """Whether the value of a key must not be shown."""
    return any(word in name.lower() for word in _SECRET)


def public_properties(*settings: Any) -> dict[str, str]:
    """The same without passwords and accounts, for answers to requests."""
    shown = effective_properties(*settings).items()
    return {key: value for key, value in shown if not is_secret(key)}


@functools.cache
def keyed_fields(cls: type) -> tuple[tuple[str, Key, Any], ...]:
    """(field name, key, type) of every field that a file can set."""
    kinds = typing.get_type_hints(cls)
    return tuple(
        (field.name, field.metadata["key"], kinds[field.name])
        for field in dataclasses.fields(cls)
        if "key" in field.metadata
    )


@functools.cache
def spellings(cls: type) -> dict[str, str]:
    """Each accepted spelling, old ones too, with the name it stands for."""
    return {spelling: key.name for _, key, _ in keyed_fields(cls) for spelling in (key.name, *key.old_names)}
