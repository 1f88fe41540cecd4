"""Values of options that several commands take: what a word means, and how a wrong one is refused.

These are for argparse, except `read_port`, which is for Typer.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from datetime import datetime

import typer

from twinlog.base.clock import wall_clock_ms


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def natural(text: str) -> int:
    """A number of 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def positive_seconds(text: str) -> float:
    """A time of more than 0 seconds, and less than a day."""
    found = _number(text)
    if not 0 < found < 86_400:
        raise ArgumentTypeError(f"{text!r} is not a time in seconds: write a number above 0, such as 30 or 0.5")
    return found


def interval_seconds(text: str) -> float:
    """The pause between two rounds of questions to a cluster."""
    found = _number(text)
    if not 0.1 <= found <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return found


def permission(text: str) -> int:
    """The permission of a topic: 4 read, 2 write, 1 inherited by new topics (as TBW102 has it), or a sum of these."""
    if not (text.isdecimal() and int(text) <= 7):
        raise ArgumentTypeError(
            f"{text!r} is not a permission: write 6 for read and write, 4 for read only, 2 for write only, 0 for none"
        )
    return int(text)


def moment_ms(text: str) -> int:
    """Milliseconds of `now`, a number of milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."""
    if text == "now":
        return wall_clock_ms()
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        return int(datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1000)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a time: write now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS"
        ) from None


def read_port(text: str) -> int:
    """A port; 0 means that the system chooses a free one."""
    if not (str(text).isdecimal() and int(text) <= 65535):
        raise typer.BadParameter(f"{text!r} is not a port; give a number from 0 to 65535, 0 takes a free one")
    return int(text)


def _number(text: str) -> float:
    """NaN, which lies between no two limits, for what is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
