"""Reads what Java's JSON library writes and reads beyond JSON, one value at a time.

Bare and single-quoted names, integers and whole objects as map keys, extra commas. This reader is slow, so the
number of values has a limit. Each token is one match of one pattern, and none backtracks: the work is linear.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import DEPTH_MAX, too_deep, too_many
from twinlog.wire.numbers import LONG_MAX, LONG_MIN

_decode = msgspec.json.Decoder().decode
_SPACE = re.compile(r"[ \t\r\n\f\b]*+")
_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n\f\b,]*+")
_BARE = re.compile(r"[^\s:,{}\[\]\"']++")
_QUOTED = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"[0-9+\-.eE]{1,400}")
_PIECE_BYTES = 64 * 1024
_CONSTANTS = {"true": True, "false": False, "null": None}

_BARE_KEY = re.compile(rb"([{,]\s*+)(-?\d++)\s*+:")
_UP_TO_BARE_KEY = re.compile(
    rb'((?:[^"{,]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{,](?!\s*+-?\d++\s*+:))*+)(?:([{,]\s*+)(-?\d++)\s*+:)?', re.DOTALL
)
_STRING_LIKE_A_KEY = re.compile(rb'"[^"{,]*+[{,][^"]*+"\s*+:')


def quote_bare_keys(data: bytes) -> bytes:
    """`data` with `{0:1}` written as `{"0":1}`, and nothing inside a string touched."""
    if b"\\" not in data and _STRING_LIKE_A_KEY.search(data) is None:
        return b"".join(_BARE_KEY.sub(rb'\1"\2":', piece) for piece in _pieces(data))
    return _UP_TO_BARE_KEY.sub(lambda m: m[1] if m[3] is None else b'%b%b"%b":' % m.groups(), data)


def _pieces(data: bytes) -> Iterator[bytes]:
    """`data` cut behind some of its quotes, where no bare key is; other threads can run between two pieces."""
    at = 0
    while at < len(data):
        end = data.find(b'"', at + _PIECE_BYTES) + 1 or len(data)
        yield data[at:end]
        at = end


def read_dialect(text: str, values_max: int) -> Any:
    """The value in `text`; BodyError names the character at which it is broken."""
    return _Reader(text, values_max).whole()


class _Reader:
    """`_at` is where the next token begins."""

    def __init__(self, text: str, values_max: int) -> None:
        self._text = text
        self._at = 0
        self._values_max = self._left = values_max

    def whole(self) -> Any:
        value = self._value(self._peek(), 0)
        self._at = _end(_SPACE, self._text, self._at)
        if self._at != len(self._text):
            raise self._error("text after the end of the value")
        return value

    def _value(self, start: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise too_many(self._values_max)
        if start == "{":
            return self._object(depth)
        if start == "[":
            return self._array(depth)
        return self._string(start) if start in "\"'" else self._scalar()

    def _object(self, depth: int) -> dict[Any, Any]:
        if depth > DEPTH_MAX:
            raise too_deep()
        result: dict[Any, Any] = {}
        self._at += 1
        while True:
            start = self._peek(_SPACE_AND_COMMAS)
            if start == "}":
                self._at += 1
                return result
            key = self._object_key(start, depth)
            if self._peek() != ":":
                raise self._error("':' expected after a member name")
            self._at += 1
            result[key] = self._value(self._peek(), depth + 1)
            if self._peek() not in ",}":
                raise self._error("',' or '}' expected after a member")

    def _object_key(self, start: str, depth: int) -> Any:
        if start == "{":
            key = self._value(start, depth + 1)
            if any(isinstance(value, dict | list) for value in key.values()):
                raise self._error("a map key with members that are not plain")
            try:
                return tuple(sorted(key.items()))
            except TypeError:
                raise self._error("a map key with members that do not sort") from None
        return self._string(start) if start in "\"'" else self._word("a member name")

    def _array(self, depth: int) -> list[Any]:
        if depth > DEPTH_MAX:
            raise too_deep()
        result: list[Any] = []
        self._at += 1
        while True:
            start = self._peek(_SPACE_AND_COMMAS)
            if start == "]":
                self._at += 1
                return result
            result.append(self._value(start, depth + 1))
            if self._peek() not in ",]":
                raise self._error("',' or ']' expected after an element")

    def _string(self, mark: str) -> str:
        match = _QUOTED[mark].match(self._text, self._at)
        if match is None:
            raise self._error("a string without end")
        raw, self._at = match[1], match.end()
        if mark == "'":
            raw = raw.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in raw:
            return raw
        try:
            return _decode(f'"{raw}"')
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._error(f"a string with a bad escape ({error})") from error

    def _scalar(self) -> Any:
        word = self._word("a value")
        if _INTEGER.fullmatch(word):
            number = int(word) if len(word) <= 20 else LONG_MAX + 1
            if not LONG_MIN <= number <= LONG_MAX:
                raise self._error(f"{word[:40]} is not a number of 64 bits")
            return number
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        try:
            number = float(word) if _NUMBER.fullmatch(word) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):  # as in JSON; Java's library reads NaN as null
            raise self._error(f"{word[:40]!r} is not a value")
        return number

    def _word(self, what: str) -> str:
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise self._error(f"{what} expected")
        self._at = match.end()
        return match[0]

    def _peek(self, skipped: re.Pattern[str] = _SPACE) -> str:
        self._at = _end(skipped, self._text, self._at)
        if self._at >= len(self._text):
            raise self._error("the text ends too early")
        return self._text[self._at]

    def _error(self, what: str) -> BodyError:
        return BodyError(f"JSON is broken at character {self._at}: {what}")


def _end(skipped: re.Pattern[str], text: str, at: int) -> int:
    match = skipped.match(text, at)
    return match.end() if match else at
