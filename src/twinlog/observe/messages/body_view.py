"""A message's body as a person reads it: text, JSON or hexadecimal. Everything here is text; nothing is markup."""

from __future__ import annotations

import json

from twinlog.observe.messages.message_text import body_text

TEXT, JSON, HEX = "Text", "JSON", "Hex"
SHOWN_BYTES_MAX = 64 * 1024
_ROW = 16


def forms_of(body: bytes) -> tuple[str, ...]:
    """The forms that fit, the most readable first."""
    if _json(body) is not None:
        return (JSON, TEXT, HEX)
    return (TEXT, HEX) if _is_text(body) else (HEX, TEXT)


def shown_as(body: bytes, form: str) -> str:
    """At most SHOWN_BYTES_MAX of the body in one form, and a line that says what is left out."""
    if form == JSON and (parsed := _json(body)) is not None:
        return parsed
    part = body[:SHOWN_BYTES_MAX]
    shown = hex_dump(part) if form == HEX else "\n".join(body_text(line) for line in part.split(b"\n"))
    left = len(body) - len(part)
    return f"{shown}\n… {left:,} more bytes" if left else shown


def hex_dump(data: bytes) -> str:
    """`00000000  48 65 6c …  Hel…`, sixteen bytes in a line."""
    lines = []
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{_ROW * 3 - 1}}  {plain}")
    return "\n".join(lines)


def first_line(body: bytes, length_max: int = 120) -> str:
    text = body_text(body[: length_max * 4].split(b"\n")[0])
    return text if len(text) <= length_max and b"\n" not in body else f"{text[:length_max]} …"


def _json(body: bytes) -> str | None:
    if len(body) > SHOWN_BYTES_MAX or body[:1].strip() not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _is_text(body: bytes) -> bool:
    try:
        text = body[:SHOWN_BYTES_MAX].decode()
    except UnicodeDecodeError as error:
        return len(body) > SHOWN_BYTES_MAX and error.start >= SHOWN_BYTES_MAX - 4
    return all(character.isprintable() or character in "\n\r\t" for character in text)
