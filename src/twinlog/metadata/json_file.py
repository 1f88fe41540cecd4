"""Reads metadata JSON, Java's dialect included, into typed values, quickly enough for 100,000 rows."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from twinlog.wire import fastjson

T = TypeVar("T")

_BARE_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")
_STRING_OR_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)\s*:', re.DOTALL)
_STRING_LIKE_A_KEY = re.compile(rb'"[^"{,]*[{,][^"]*"\s*:')


def decode_json(data: bytes, into: type[T]) -> T:
    """`data` as `into`; ValueError (msgspec's errors are such too) when it is something else."""
    try:
        return msgspec.json.decode(data, type=into)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # bare keys, or numbers as text
    try:
        return msgspec.json.decode(quote_bare_keys(data), type=into, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # stranger still: the tolerant reader knows, or names what is wrong
    return msgspec.convert(fastjson.loads(data), into, strict=False)


def quote_bare_keys(data: bytes) -> bytes:
    """`data` with `{0:1}` written as `{"0":1}`, and nothing inside a string touched."""
    if b"\\" not in data and _STRING_LIKE_A_KEY.search(data) is None:
        return _BARE_KEY.sub(rb'\1"\2":', data)
    return _STRING_OR_BARE_KEY.sub(lambda m: m[1] or b'%b"%b":' % (m[2], m[3]), data)
