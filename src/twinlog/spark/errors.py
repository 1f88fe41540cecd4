"""Errors between Spark and a broker or a store; each names the place and the next step."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

TRACEBACK = "TWINLOG_TRACEBACK"  # set in the environment of workers: their errors come with a traceback
_ENTRIES = (
    *("schema", "reader", "streamReader", "writer", "streamWriter"),
    *("partitions", "read", "initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "commit", "write"),
)
_OWN_ERROR = re.compile(r"(?<![\w.])twinlog(?:\.\w+)+: (.+)")
C = TypeVar("C", bound=type)


class SparkSourceError(Exception):
    """Base of all errors of the data sources and jobs."""


def own_cause(report: str) -> str | None:
    """What our error says inside a long report of Spark's: on a line of its own, or at the end of one."""
    found = _OWN_ERROR.findall(report)
    return found[-1].strip() if found else None


class BadOption(SparkSourceError):
    """An invalid option; nothing was read."""


class BadSchema(SparkSourceError):
    """A schema of the user with a column that the source does not have, or of another type."""


class DataLoss(SparkSourceError):
    """Messages to be read are no longer there, or not in order."""

    def __init__(self, where: object, what: str) -> None:
        hint = "set failOnDataLoss=false to continue with what is left, or choose other starting offsets"
        super().__init__(f"{where}: {what}; {hint}")


class CannotRead(SparkSourceError):
    """A broker does not deliver what it was asked for."""


class NoReplica(CannotRead):
    """A master has no replica, and readFrom asks for one."""


class OffsetsNotKept(SparkSourceError):
    """A broker acknowledged an offset of a group, and does not have it."""

    def __init__(self, group: str, place: str, wanted: int, found: int | None) -> None:
        has = "none" if found is None else str(found)
        hint = "stop the group's consumers if some run, then run again"
        super().__init__(f"group {group}, {place}: its offset was set to {wanted}, the broker has {has}: {hint}")


class BrokerAway(CannotRead):
    """A broker is away for longer than the option brokerWait allows; its messages are not lost."""

    def __init__(self, name: str, why: str, elapsed_ms: float) -> None:
        hint = "start it, or set brokerWait to wait longer; nothing is lost, the query continues where it was"
        super().__init__(f"broker {name} has been away for {elapsed_ms / 1000:.0f} s ({why}): {hint}")


class BadRecord(SparkSourceError):
    """A record is torn or corrupt, or its body cannot be decompressed."""


class BadRow(SparkSourceError):
    """A row that no broker accepts as a message; it was not sent."""


class CannotWrite(SparkSourceError):
    """A broker does not store what it was sent, or it is unknown whether it did."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the known word most like `name`, or all known words."""
    by_lower = {word.lower(): word for word in known}
    found = get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"did you mean {by_lower[found[0]]!r}?" if found else f"known are {', '.join(sorted(by_lower.values()))}"


def columns_of(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown column: the nearest one, and all of them."""
    names = list(known)
    hint = nearest(name, names)
    return hint if hint.startswith("known are") else f"{hint} The columns are {', '.join(names)}"


def errors_without_traceback(source: C) -> C:
    """A class that Spark calls in a worker, whose own errors are reported there by their message alone.

    Spark writes the traceback before the message, and wraps both: the reason would stand below some thirty lines.
    """
    for name in _ENTRIES:
        method = source.__dict__.get(name)
        if method is not None:
            setattr(source, name, _reporting(method))
    return source


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def rows(*args: Any, **more: Any) -> Any:
            try:
                yield from method(*args, **more)
            except Exception as error:
                _hide_traceback(error)
                raise

        return rows

    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return method(*args, **more)
        except Exception as error:
            _hide_traceback(error)
            raise

    return call


def _hide_traceback(error: Exception) -> None:
    """Let PySpark report only the message of one of our errors; its worker ends with it, and so does the setting."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    in_worker = spec is not None and spec.name.startswith("pyspark.")
    if in_worker and type(error).__module__.startswith("twinlog.") and TRACEBACK not in os.environ:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
