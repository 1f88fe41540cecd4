"""Text forms of time in settings: delay levels such as `1s 5m 2h`, and hours of the day such as `04;05`."""

from __future__ import annotations

import re

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]+)([smhd])")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level; level 1 is the first."""
    levels: list[int] = []
    for word in text.split():
        match = _LEVEL.fullmatch(word)
        if match is None:
            raise ValueError(f"level {word!r} is not a number with one of the units s, m, h, d; write for example 10s")
        levels.append(int(match[1]) * _UNIT_MS[match[2]])
    if not levels:
        raise ValueError("no delay level given; write for example `1s 5s 10s`")
    return tuple(levels)


def check_delay_levels(text: str) -> str | None:
    try:
        parse_delay_levels(text)
    except ValueError as problem:
        return f"is not a list of delay levels: {problem}"
    return None


def parse_hours(text: str) -> tuple[int, ...]:
    """The hours of the day in `04;16`."""
    hours = tuple(int(word) for word in text.split(";") if word.strip())
    if not hours or not all(0 <= hour <= 23 for hour in hours):
        raise ValueError(text)
    return hours


def check_hours(text: str) -> str | None:
    try:
        parse_hours(text)
    except ValueError:
        return "is not a list of hours; write hours from 00 to 23 with ; between them, for example 04;16"
    return None
