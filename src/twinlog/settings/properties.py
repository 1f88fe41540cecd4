"""Java's properties text: what broker.conf and namesrv.conf are written in.

    # comment          ! comment too
    key=value          key = value          key: value          key value
    key = first \\
          second       a backslash at the end joins the next line, without its leading blanks
    \\t \\n \\r \\f \\uXXXX   escapes; a backslash before any other character is dropped

A later line with the same key wins, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twinlog.settings.errors import SettingsError

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    value: str
    line: int  # of the key, from 1
    last_line: int = 0  # differs from `line` when the value has several lines


def parse_properties(text: str, *, source: str = "properties") -> list[Entry]:
    """All entries in the order of the text; the caller decides what a repeated key means."""
    entries: list[Entry] = []
    for first, last, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        where = f"{source}:{first}"
        entries.append(Entry(_unescape(raw_key, where), _unescape(raw_value, where), first, last))
    return entries


def format_properties(values: Mapping[str, str]) -> str:
    """`key=value` lines sorted by key, which `parse_properties` and Java's loader read back."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in sorted(values.items()))


def replace_values(text: str, values: Mapping[str, str]) -> str:
    """`text` with these keys set, everything else (comments, order, blank lines) as it was."""
    lines, missing = _LINE_END.split(text.rstrip("\r\n")) if text.strip() else [], dict(values)
    for entry in reversed(parse_properties(text)):
        if entry.key not in values:
            continue
        first = entry.key in missing  # from the end: the line that wins is the one that stays
        value = missing.pop(entry.key, "")
        lines[entry.line - 1 : entry.last_line] = [format_properties({entry.key: value})[:-1]] if first else []
    lines += [format_properties({key: value})[:-1] for key, value in missing.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    joined, first = "", 0
    last = 0
    for last, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = last
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first, last, joined + line
        joined, first = "", 0
    if first and joined:
        yield first, last, joined


def _split(line: str) -> tuple[str, str]:
    at, escaped = 0, False
    while at < len(line) and (escaped or line[at] not in "=: \t\f"):
        escaped = line[at] == "\\" and not escaped
        at += 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, where: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise SettingsError(
                f"{where}: {text!r} holds \\u without four hex digits; write \\\\u for a plain backslash"
            )
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, text) if "\\" in text else text


def _escape(text: str, *, is_key: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if is_key:
        return re.sub(r"([=: \t\f#!])", r"\\\1", text)
    return "\\" + text if text[:1] in (" ", "\t", "\f") else text
