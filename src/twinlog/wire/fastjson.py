"""JSON as RocketMQ writes and reads it, which is more than JSON.

Java's library writes integer map keys bare (`{0:"a"}`), writes whole objects as map keys
(`{{"queueId":1}:{...}}`), and replaces a repeated object by `{"$ref":"$.path"}`; it reads bare and
single-quoted names too. `loads` accepts all of that; `dumps` writes it where old peers need it.
"""

import re
from typing import Any, Literal

import msgspec

from twinlog.wire.errors import BodyError

DEPTH_MAX = 64
IntKeys = Literal["bare", "quoted"]

_decode = msgspec.json.Decoder().decode
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f-\x9f\u2028\u2029]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_LONG = re.compile(r"-?\d+$")
_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_BARE = re.compile(r"[^\s:,{}\[\]\"']+")
_REF_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def loads(data: bytes | str) -> Any:
    """The value in `data`. Object keys become tuples of sorted (name, value) pairs; other keys stay text."""
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _Reader(_as_text(data)).whole()
    has_references = "$ref" in data if isinstance(data, str) else b"$ref" in data
    return _resolve(value, value, 0) if has_references else value


def dumps(value: Any, *, int_keys: IntKeys = "bare") -> bytes:
    """Compact text: struct members in alphabetical order, absent members left out, maps in their own order."""
    parts: list[str] = []
    _write(value, parts, int_keys == "bare")
    return "".join(parts).encode()


def quote(text: str) -> str:
    """`text` as a JSON string with Java's choice of escapes."""
    if _ESCAPED.search(text) is None:
        return f'"{text}"'
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04X}", text) + '"'


def java_double(value: float) -> str:
    """`value` as Java prints a double; a number that is none becomes null, as fastjson does."""
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)) if "e" not in repr(float(value)) else f"{value:f}"
    mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" in repr(value) else f"{value:.16e}".split("e")
    digits = mantissa.rstrip("0") if "." in mantissa else mantissa + "."
    return f"{digits}0E{int(exponent)}" if digits.endswith(".") else f"{digits}E{int(exponent)}"


def _write(value: Any, out: list[str], bare: bool) -> None:
    if isinstance(value, str):
        out.append(quote(value))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, int):
        out.append(str(int(value)))
    elif isinstance(value, float):
        out.append(java_double(value))
    elif isinstance(value, dict):
        _write_members(((_key(k, bare), v) for k, v in value.items()), out, bare)
    elif isinstance(value, msgspec.Struct):
        _write_members(_members(value), out, bare)
    elif isinstance(value, list | tuple | set | frozenset):
        out.append("[")
        for i, item in enumerate(value):
            if i:
                out.append(",")
            _write(item, out, bare)
        out.append("]")
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form here")


def _write_members(members: Any, out: list[str], bare: bool) -> None:
    out.append("{")
    separator = ""
    for name, member in members:
        if member is None:
            continue
        out.append(f"{separator}{name}:")
        _write(member, out, bare)
        separator = ","
    out.append("}")


def _members(value: msgspec.Struct) -> list[tuple[str, Any]]:
    pairs = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return [(f'"{name}"', getattr(value, attribute)) for name, attribute in sorted(pairs)]


def _key(key: Any, bare: bool) -> str:
    if isinstance(key, str):
        return quote(key)
    if isinstance(key, int):
        return str(key) if bare else f'"{key}"'
    out: list[str] = []
    _write(dict(key) if isinstance(key, tuple) else key, out, bare)
    return "".join(out)


def _as_text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"JSON text is not UTF-8 at byte {error.start}") from error


def _resolve(value: Any, root: Any, depth: int) -> Any:
    """`value` with every `{"$ref": path}` replaced by what the path names."""
    if depth > DEPTH_MAX:
        raise BodyError(f"JSON is nested deeper than {DEPTH_MAX}")
    if isinstance(value, list):
        return [_resolve(item, root, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if len(value) == 1 and isinstance(reference, str):
        target = root
        for name, index in _REF_STEP.findall(reference):
            try:
                target = target[int(index)] if index else target[name]
            except (KeyError, IndexError, TypeError, ValueError):
                raise BodyError(f"JSON reference {reference!r} leads nowhere") from None
        if isinstance(target, dict) and "$ref" in target:
            raise BodyError(f"JSON reference {reference!r} leads to another reference")
        return target
    return {key: _resolve(item, root, depth + 1) for key, item in value.items()}


class _Reader:
    """A small tolerant reader for what a standard parser refuses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise self._error("text after the end of the value")
        return value

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise BodyError(f"JSON is nested deeper than {DEPTH_MAX}")
        start = self._peek()
        if start == "{":
            return self._object(depth)
        if start == "[":
            return self._array(depth)
        if start in "\"'":
            return self._string()
        return self._scalar()

    def _object(self, depth: int) -> dict:
        result: dict = {}
        self._at += 1
        while True:
            start = self._peek()
            if start == "}":
                self._at += 1
                return result
            if start == ",":
                self._at += 1
                continue
            key = self._object_key(start, depth)
            if self._peek() != ":":
                raise self._error("':' expected after a member name")
            self._at += 1
            result[key] = self._value(depth + 1)
            if self._peek() not in ",}":
                raise self._error("',' or '}' expected after a member")

    def _object_key(self, start: str, depth: int) -> Any:
        if start == "{":
            if depth >= DEPTH_MAX:
                raise BodyError(f"JSON is nested deeper than {DEPTH_MAX}")
            key = self._object(depth + 1)
            try:
                return tuple(sorted(key.items()))
            except TypeError:
                raise self._error("a map key with members that do not sort") from None
        if start in "\"'":
            return self._string()
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise self._error("a member name expected")
        self._at = match.end()
        return match[0]

    def _array(self, depth: int) -> list:
        result = []
        self._at += 1
        while True:
            start = self._peek()
            if start == "]":
                self._at += 1
                return result
            if start == ",":
                self._at += 1
                continue
            result.append(self._value(depth + 1))
            if self._peek() not in ",]":
                raise self._error("',' or ']' expected after an element")

    def _string(self) -> str:
        text, mark = self._text, self._text[self._at]
        end = self._at + 1
        while True:
            if end >= len(text):
                raise self._error("a string without end")
            if text[end] == mark:
                break
            end += 2 if text[end] == "\\" else 1
        raw, self._at = text[self._at + 1 : end], end + 1
        if mark == "'":
            raw = raw.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in raw:
            return raw
        try:
            return _decode(f'"{raw}"')
        except msgspec.DecodeError as error:
            raise self._error(f"a string with a bad escape ({error})") from error

    def _scalar(self) -> Any:
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise self._error("a value expected")
        word = match[0]
        self._at = match.end()
        if _LONG.match(word):
            return int(word)
        constant = {"true": True, "false": False, "null": None, "NaN": None}.get(word, word)
        if constant is not word:
            return constant
        try:
            return float(word)
        except ValueError:
            raise self._error(f"{word!r} is no value") from None

    def _peek(self) -> str:
        self._skip()
        if self._at >= len(self._text):
            raise self._error("the text ends too early")
        return self._text[self._at]

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _error(self, what: str) -> BodyError:
        return BodyError(f"JSON is broken at character {self._at}: {what}")
