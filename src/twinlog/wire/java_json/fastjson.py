"""JSON as RocketMQ writes and reads it, which is more than JSON.

Java's library writes integer map keys bare (`{0:"a"}`), writes whole objects as map keys
(`{{"queueId":1}:{...}}`), and replaces a repeated object by `{"$ref":"$.path"}`; it reads bare and
single-quoted names too. `loads` accepts all of that; `dumps` writes it where old peers need it.
"""

# Not strict: the values are JSON of any shape.
# pyright: standard

import re
from typing import Any, Literal, TypeGuard

import msgspec

from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import DEPTH_MAX, PEER, Budget, check_size, too_deep
from twinlog.wire.java_json.dialect import read_dialect
from twinlog.wire.java_json.references import resolve
from twinlog.wire.numbers import LONG_MAX, LONG_MIN

IntKeys = Literal["bare", "quoted"]

_decode = msgspec.json.Decoder().decode
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f-\x9f\u2028\u2029]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_LONG_DIGITS = len(str(LONG_MAX))  # a shorter text holds no larger number


def loads(data: bytes | str, budget: Budget = PEER) -> Any:
    """The value in `data`. Object keys become tuples of sorted (name, value) pairs; other keys stay text."""
    count = check_size(data, budget.values_max)
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = read_dialect(_as_text(data), budget.slow_values_max)
    if count > DEPTH_MAX or len(data) >= _LONG_DIGITS:
        _check([value])
    has_references = "$ref" in data if isinstance(data, str) else b"$ref" in data
    # What was written may double by its references, so that the work stays in proportion to the text.
    return resolve(value, max(budget.slow_values_max, 2 * count)) if has_references else value


def dumps(value: Any, *, int_keys: IntKeys = "bare") -> bytes:
    """Compact text: struct members in alphabetical order, absent members left out, maps in their own order."""
    parts: list[str] = []
    _write(value, parts, int_keys == "bare")
    return "".join(parts).encode()


def is_object(value: object) -> TypeGuard[dict[Any, Any]]:
    """Whether a value from `loads` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value from `loads` is a JSON array."""
    return isinstance(value, list)


def quote(text: str) -> str:
    """`text` as a JSON string with Java's choice of escapes."""
    if _ESCAPED.search(text) is None:
        return f'"{text}"'
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04X}", text) + '"'


def java_double(value: float) -> str:
    """`value` as Java prints a double; NaN and the infinities become null, as fastjson writes them."""
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


def _check(value: Any) -> None:
    """Raise BodyError for an integer beyond 64 bits, and for nesting too deep for recursive code."""
    level = [value]
    for _ in range(DEPTH_MAX + 2):
        inner: list = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one
        for one in inner:
            if isinstance(one, int) and not LONG_MIN <= one <= LONG_MAX:
                raise BodyError(f"JSON holds {str(one)[:40]}, which is not a number of 64 bits")
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return
    raise too_deep()


def _as_text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"JSON text is not UTF-8 at byte {error.start}") from error
