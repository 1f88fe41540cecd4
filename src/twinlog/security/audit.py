"""The log of what administrators did: one JSON line for each request, with who, from where, what and the result.

    {"time":"2026-11-16T10:00:00.123Z","account":"root","peer":"10.0.0.5:51234","request":"DELETE_TOPIC_IN_BROKER",
     "what":{"topic":"orders"},"result":0}

Secrets are never in it: no body but the names of changed settings, and no signature. The file is rotated, and a limit
on its size and number keeps requests from filling a disk. Of what strangers are refused, only the first requests of a
minute are written: otherwise they could push out the lines of administrators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from twinlog.base.safe_files import open_file, refuse_link
from twinlog.security.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from twinlog.settings.properties import parse_properties
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode
from twinlog.wire.twinlog_codes import TwinlogCode

log = get_logger(__name__)
_HIDDEN = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, "password"})
_FIELDS_MAX, _TEXT_MAX, _BODY_MAX = 32, 256, 64 * 1024
REFUSED_PER_MINUTE = 30
_REFUSED_BYTES_MAX = 1024
_MANY = "more requests of strangers are refused in this minute, and not written"
_SETTINGS = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)


def audit_line(
    now_ms: int, account: str | None, peer: str, code: int, fields: Mapping[str, str], body: bytes | None, result: int,
    remark: str | None,
) -> bytes:  # fmt: skip
    """The line of one request. `account` has signed it; a name that nobody has proven is in `claims`."""
    entry: dict[str, Any] = {
        "time": _time(now_ms),
        "account": None if account is None else _clean(account),
        **({"claims": _clean(fields[ACCESS_KEY])} if account is None and ACCESS_KEY in fields else {}),
        "peer": peer,
        "request": request_name(code),
        "what": _what(code, fields, body),
        "result": result,
    }
    if remark:
        entry["remark"] = _clean(remark)
    return msgspec.json.encode(entry) + b"\n"


def _time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def request_name(code: int) -> str:
    for codes in (RequestCode, TwinlogCode):
        try:
            return codes(code).name
        except ValueError:
            continue
    return str(code)


def _what(code: int, fields: Mapping[str, str], body: bytes | None) -> dict[str, Any]:
    shown = [(name, value) for name, value in fields.items() if name not in _HIDDEN][:_FIELDS_MAX]
    what: dict[str, Any] = {_clean(name): _clean(value) for name, value in shown}
    if code in _SETTINGS and body and len(body) <= _BODY_MAX:
        try:
            keys = [entry.key for entry in parse_properties(body.decode(), source="request")]
        except (ValueError, UnicodeDecodeError):
            keys = ["?"]
        what["settings"] = [_clean(key) for key in keys[:_FIELDS_MAX]]
    return what


def _clean(text: str) -> str:
    """Text that JSON can hold: a peer may send half of a surrogate pair."""
    return text[:_TEXT_MAX].encode("utf-8", "replace").decode()


class AuditLog:
    """Appends lines to a file, of which a few old ones are kept."""

    def __init__(self, path: Path, bytes_max: int, files_max: int, now_ms: Callable[[], int]) -> None:
        refuse_link(path)
        self.path = path
        self.now_ms = now_ms
        self._bytes_max, self._files_max = bytes_max, files_max
        self._is_failing = False
        self._minute = self._refused = 0

    def write_refused(self, line: bytes) -> None:
        """Append the line of a request that was refused to somebody unknown, unless there were many in this minute."""
        now_ms = self.now_ms()
        if now_ms // 60_000 != self._minute:
            self._minute, self._refused = now_ms // 60_000, 0
        self._refused += 1
        if self._refused <= REFUSED_PER_MINUTE and len(line) <= _REFUSED_BYTES_MAX:
            self.write(line)
        elif self._refused <= REFUSED_PER_MINUTE + 1:
            note = "a request that is too long was refused" if self._refused <= REFUSED_PER_MINUTE else _MANY
            self.write(msgspec.json.encode({"time": _time(now_ms), "note": note}) + b"\n")

    def write(self, line: bytes) -> None:
        """Append a line. A disk that is full does not keep an administrator from making room: it is logged once."""
        try:
            self._append(line)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.error("the audit log cannot be written", path=str(self.path), error=str(error))
            self._is_failing = True

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._bytes_max:
                os.close(descriptor)
                descriptor = -1
                self._rotate()
                descriptor = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, line)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _rotate(self) -> None:
        """audit.log becomes audit.log.1, that becomes audit.log.2, and the last one goes."""
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{one}") for one in range(1, self._files_max))]
        for name in names:
            refuse_link(name)
        names[-1].unlink(missing_ok=True)
        for older, newer in reversed(list(zip(names[1:], names, strict=False))):
            if newer.exists():
                os.replace(newer, older)
