"""Reads metadata JSON, Java's dialect included, into typed values, quickly enough for 100,000 rows."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from twinlog.wire.java_json.budget import FILE
from twinlog.wire.java_json.dialect import quote_bare_keys
from twinlog.wire.java_json.fastjson import loads

T = TypeVar("T")


def decode_json(data: bytes, into: type[T]) -> T:
    """`data` as `into`; ValueError (or msgspec's, which is one) when it is something else."""
    try:
        return msgspec.json.decode(data, type=into)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # bare keys, or numbers as text
    try:
        return msgspec.json.decode(quote_bare_keys(data), type=into, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the tolerant reader accepts it, or names the problem
    return msgspec.convert(loads(data, FILE), into, strict=False)
