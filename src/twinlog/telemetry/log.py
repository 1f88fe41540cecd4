"""Log lines with fields, on standard error.

    2026-11-15T10:00:00.123Z warning net.server a connection was not admitted peer=192.0.2.1:5000 error="closed early"

It uses the standard library's loggers, so an application that uses the client decides what happens to these records;
`setup_logging` is for our own commands. Plain code instead of a logging library: start-up stays short.

What a peer sends may be in a field. A field, an event and a traceback are cut to a length here, and lines that repeat
themselves are left out and counted (`line_limit`), so that no peer can fill a disk with log lines.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from typing import Any, TextIO

from twinlog.telemetry.line_limit import MANY, SAME, Key, LineLimit, allow_per_second

FIELD_LENGTH_MAX = 512
EVENT_LENGTH_MAX = 2048
TRACEBACK_LENGTH_MAX = 16 * 1024
_SAME_SHOWN_MAX = 160
LEVELS = ("debug", "info", "warning", "error")
_ROOT = "twinlog"
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]*|[0-9]+")  # also in hexadecimal
_PLAIN = re.compile(r'[^\s"=\\]+')


class Log:
    """A logger whose calls take an event and its fields: `log.info("topic created", topic=name)`."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> Log:
        """The same log with these fields on every line."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, {"exc_info": True, **fields})

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            exc_info = fields.pop("exc_info", None)
            self._logger.log(level, Event(event, {**self._fields, **fields}), exc_info=exc_info)


class Event:
    """The message of a record; it becomes text only when it is printed."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: dict[str, Any]) -> None:
        self.text = text
        self.fields = fields

    def __str__(self) -> str:
        return " ".join(
            [shortened(self.text, EVENT_LENGTH_MAX), *(f"{key}={_shown(value)}" for key, value in self.fields.items())]
        )


def get_logger(name: str) -> Log:
    """The log of one module; `name` is its `__name__`."""
    return Log(logging.getLogger(name), {})


def setup_logging(level: str = "info", json: bool = False, stream: TextIO | None = None) -> None:
    """Send our records of `level` and above to standard error; calling it again replaces the former choice."""
    if level.lower() not in LEVELS:
        raise ValueError(f"log level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    handler = LimitedHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if json else _TextFormatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    # asyncio's own warnings (a task that failed unseen, a callback that raised) go to the same place.
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.handlers[:] = [handler]
    asyncio_logger.propagate = False


def lines_left_out() -> int:
    """How many lines this process did not write because they repeated themselves."""
    handlers = logging.getLogger(_ROOT).handlers
    limited = [handler for handler in handlers if isinstance(handler, LimitedHandler)]
    return sum(handler.limit.left_out + handler.all.left_out + handler.same.left_out for handler in limited)


def limit_lines(per_second: int) -> None:
    """Write so many lines per second of one event about one peer, and ten times as many about all peers."""
    for handler in logging.getLogger(_ROOT).handlers:
        if isinstance(handler, LimitedHandler):
            handler.allow(per_second)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines while the limit of their event and peer allows it, and a summary of those it left out."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.same = LineLimit(SAME)
        self.allow(int(MANY.per_s))

    def allow(self, per_second: int) -> None:
        """Begin to count anew, with other limits."""
        self.limit = LineLimit(allow_per_second(per_second))
        self.all = LineLimit(allow_per_second(10 * per_second))  # of one event, whatever the peer

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        self._summarise(now_s)
        if not self.same.admit(_whole_line(record), now_s):
            return
        key = _key(record)
        if self.limit.admit(key, now_s) and self.all.admit((key[0], ""), now_s):
            super().emit(record)

    def close(self) -> None:
        self._summarise(math.inf)
        super().close()

    def _summarise(self, now_s: float) -> None:
        for (event, peer), count in (*self.limit.take_summaries(now_s), *self.all.take_summaries(now_s)):
            fields: dict[str, Any] = {"lines": count, "of": event, **({"peer": peer} if peer else {})}
            self._note("lines were left out that repeat themselves", fields)
        for (line, _), count in self.same.take_summaries(now_s):
            self._note("the same line was repeated", {"times": count, "line": line})

    def _note(self, text: str, fields: dict[str, Any]) -> None:
        super().emit(logging.LogRecord(__name__, logging.WARNING, __file__, 0, Event(text, fields), None, None))


def _whole_line(record: logging.LogRecord) -> Key:
    """The beginning of a line, to show it, and a digest of all of it."""
    text = str(record.msg) if isinstance(record.msg, Event) else record.getMessage()
    return shortened(text, _SAME_SHOWN_MAX), f"{record.levelno} {hash(text)}"


def _key(record: logging.LogRecord) -> Key:
    event = record.msg
    if not isinstance(event, Event):  # asyncio's: the first line is the event; its numbers differ each time
        return _NUMBER.sub("#", str(event).partition("\n")[0][:FIELD_LENGTH_MAX]), ""
    peer = str(event.fields.get("peer", ""))[:FIELD_LENGTH_MAX]
    return shortened(event.text, FIELD_LENGTH_MAX), peer.rpartition(":")[0] or peer


def shortened(text: str, length_max: int) -> str:
    """`text`, or its beginning and its whole length."""
    return text if len(text) <= length_max else f"{text[:length_max]}... ({len(text)} characters)"


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:
        """The traceback without its middle: where it began and what was raised are at its ends."""
        text, half = super().formatException(ei), TRACEBACK_LENGTH_MAX // 2
        if len(text) <= 2 * half:
            return text
        return f"{text[:half]}\n... ({len(text) - 2 * half} characters)\n{text[-half:]}"


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(_ROOT + ".")
        text = str(record.msg) if isinstance(record.msg, Event) else shortened(record.getMessage(), EVENT_LENGTH_MAX)
        line = f"{_timestamp(record.created)} {record.levelname.lower()} {name} {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = record.msg
        text, fields = (event.text, event.fields) if isinstance(event, Event) else (record.getMessage(), {})
        line = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(_ROOT + "."),
            "event": shortened(text, EVENT_LENGTH_MAX),
            **{key: _kept(value) for key, value in fields.items()},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _timestamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"


def _kept(value: Any) -> Any:
    """A field for JSON: its type stays unless it is too long."""
    if isinstance(value, int | float) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return shortened(text, FIELD_LENGTH_MAX) if len(text) > FIELD_LENGTH_MAX else value


def _shown(value: Any) -> str:
    text = shortened(str(value), FIELD_LENGTH_MAX)
    # Anything unusual is quoted, so that a hostile name cannot forge a second line or another field.
    return (
        text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=not text.isprintable())
    )
