"""Numbers as text, each with its unit; what is unknown is called so, and never shown as 0."""

from __future__ import annotations

from datetime import datetime

UNKNOWN = "unknown"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def bytes_text(count: float | None) -> str:
    """`1.5 MiB`, `640 B`."""
    if count is None:
        return UNKNOWN
    power, value = 0, float(count)
    while abs(value) >= 1024 and power < len(_BYTE_UNITS) - 1:
        power, value = power + 1, value / 1024
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_BYTE_UNITS[power]}"


def byte_rate_text(per_second: float | None) -> str:
    return UNKNOWN if per_second is None else f"{bytes_text(per_second)}/s"


def rate_text(per_second: float | None, unit: str = "msg") -> str:
    """`12.5 msg/s`; whole numbers from 100 on."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:,.0f} {unit}/s" if per_second >= 100 else f"{per_second:.1f} {unit}/s"


def count_text(count: int | None, *, exact: bool = True) -> str:
    """`12,345`, and `~12,345` for an estimate."""
    return UNKNOWN if count is None else f"{'' if exact else '~'}{count:,}"


def percent_text(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.0f} %"


def duration_text(ms: float | None) -> str:
    """The two largest units: `350 ms`, `4.2 s`, `3 min 5 s`, `2 d 4 h`."""
    if ms is None:
        return UNKNOWN
    ms = max(0.0, ms)
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    for unit, name, part, part_name in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min")):
        if ms >= unit:
            return f"{int(ms // unit)} {name} {int(ms % unit // part)} {part_name}"
    return f"{int(ms // _MINUTE)} min {int(ms % _MINUTE // _SECOND)} s"


def ago_text(at_ms: int | None, now_ms: int) -> str:
    return UNKNOWN if not at_ms else f"{duration_text(now_ms - at_ms)} ago"


def time_text(at_ms: int | None) -> str:
    """Local time, to the second. Brokers may name times that no calendar has."""
    try:
        return UNKNOWN if not at_ms else datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
