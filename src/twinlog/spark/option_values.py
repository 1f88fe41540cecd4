"""Options as Spark passes them, all text, and how each kind of value is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from twinlog.spark.errors import BadOption, nearest
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_OF_TABLES = {"owner", "provider"}  # Spark adds them for a persistent table
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATIONS_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionValues:
    """The options of one source or sink; names are not case-sensitive, as everywhere in Spark."""

    def __init__(self, given: Mapping[str, str], *, known: Iterable[str], ignored: Iterable[str] = ()) -> None:
        """BadOption for an unknown name; a warning for one in `ignored`, which has no effect on this read or write."""
        refuse_persistent_table(given)
        names = {name.lower(): name for name in (*known, *ignored)}
        self._values = {}
        for name, value in given.items():
            canonical = names.get(name.lower())
            if canonical is None:
                raise BadOption(f"there is no option {name!r}: {nearest(name, names.values())}")
            self._values[canonical] = value
        for name in ignored:
            if name in self._values:
                log.warning("an option has no effect on this kind of read", option=name)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._values.get(name)
        return default if value is None or not value.strip() else value.strip()

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if value is None:
            raise BadOption(f"option {name} is missing: give it, for example {example}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Comma-separated names, sorted; BadOption if there are none."""
        text = self.text(name) or ""
        found = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
        if not found:
            raise BadOption(f"option {name} is {text!r}: give topics with commas between them")
        return found

    def integer(self, name: str, default: int, *, low: int = 0) -> int:
        value = self.optional_integer(name, low=low)
        return default if value is None else value

    def optional_integer(self, name: str, *, low: int = 0) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdigit() or int(text) < low:
            raise BadOption(f"option {name} is {text!r}: give a whole number from {low} on")
        return int(text)

    def moment_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, from such a number or an ISO time."""
        text = self.text(name)
        return None if text is None else parse_moment_ms(text, f"option {name}")

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise BadOption(f"option {name} is {text!r}: give true or false")
        return text == "true"

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        text = self.text(name, default) or default
        found = {word.lower(): word for word in allowed}.get(text.lower())
        if found is None:
            raise BadOption(f"option {name} is {text!r}: {nearest(text, allowed)}")
        return found

    def size(self, name: str, default: int | None = None, *, low: int = 1) -> int | None:
        """Bytes, as 134217728, 128m or 1g."""
        return self._measured(name, _SIZE, _SIZES, "128m", default, low)

    def duration_ms(self, name: str, default: int) -> int:
        """Milliseconds, as 500, 30s or 15m."""
        found = self._measured(name, _DURATION, _DURATIONS_MS, "15m", default, 0)
        assert found is not None
        return found

    def _measured(
        self, name: str, pattern: re.Pattern[str], units: Mapping, example: str, default: int | None, low: int
    ) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        match = pattern.fullmatch(text)
        value = int(match[1]) * units[match[2].lower() if match[2] else match[2]] if match else -1
        if match is None or value < low:
            raise BadOption(f"option {name} is {text!r}: give a number with a unit, for example {example}")
        return value


def parse_moment_ms(text: str, what: str) -> int:
    """A time as milliseconds since 1970 or in ISO form; without a zone it is UTC. BadOption begins with `what`."""
    try:
        if text.strip().isdigit():
            return int(text)
        moment = datetime.fromisoformat(text.strip())
        return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        hint = "write 2026-11-15T10:00, with +01:00 behind it if it is not UTC, or milliseconds since 1970"
        raise BadOption(f"{what} {text!r} is not a time: {hint}") from None


def refuse_persistent_table(given: Mapping[str, str]) -> None:
    """BadOption for a persistent table: Spark does not pass its options to a source."""
    if not given or _OF_TABLES & {name.lower() for name in given}:
        hint = "in SQL use CREATE TEMPORARY VIEW name USING rocketmq OPTIONS (...), elsewhere .option(name, value)"
        raise BadOption(f"there are no options: Spark does not pass on those of a persistent table; {hint}")


def option_includes_properties(given: Mapping[str, str]) -> bool:
    """The one option that the schema depends on; Spark asks for the schema before it reads or writes."""
    text = {name.lower(): value for name, value in given.items()}.get("includeproperties", "true")
    return text.strip().lower() != "false"
