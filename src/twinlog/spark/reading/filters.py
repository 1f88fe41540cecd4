"""Filters that Spark pushes down, as limits to planning.

Every filter is also handed back to Spark, which applies it again: a limit may therefore be wider than the filter, never
narrower. Only batch reads get any, and only once `register` has switched the push-down on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_NUMBERS = ("queueOffset", "commitLogOffset", "storeTimestamp")
_NAMES = ("topic", "brokerName", "queueId")


@dataclass(slots=True)
class Limits:
    """What the rows wanted have in common; an empty one wants everything."""

    allowed: dict[str, set[Any]] = field(default_factory=dict)
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)  # inclusive

    def allows(self, column: str, value: Any) -> bool:
        return column not in self.allowed or value in self.allowed[column]

    def overlaps(self, column: str, low: int, high: int) -> bool:
        """Whether a wanted row may have a value between `low` and `high`, both included."""
        return self.low.get(column, low) <= high and self.high.get(column, high) >= low

    def _allow(self, column: str, values: Iterable[Any]) -> None:
        found = set(values)
        self.allowed[column] = self.allowed[column] & found if column in self.allowed else found

    def _at_least(self, column: str, value: int) -> None:
        self.low[column] = max(value, self.low.get(column, value))

    def _at_most(self, column: str, value: int) -> None:
        self.high[column] = min(value, self.high.get(column, value))


def limits_of(filters: Iterable[Filter]) -> Limits:
    """The limits that follow from `filters`; filters on other columns say nothing."""
    limits = Limits()
    for one in filters:
        attribute = getattr(one, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else ""
        if column in _NAMES:
            if isinstance(one, EqualTo | EqualNullSafe):
                limits._allow(column, [one.value])
            elif isinstance(one, In):
                limits._allow(column, one.value)
        elif column in _NUMBERS:
            _limit_number(limits, column, one)
    return limits


def _limit_number(limits: Limits, column: str, one: Filter) -> None:
    if isinstance(one, In):
        numbers = [_number(value) for value in one.value if value is not None]
        if numbers:
            limits._at_least(column, math.floor(min(numbers)))
            limits._at_most(column, math.ceil(max(numbers)))
        return
    value = getattr(one, "value", None)
    if value is None:
        return
    if isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        limits._at_least(column, math.floor(_number(value)))
    if isinstance(one, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual):
        limits._at_most(column, math.ceil(_number(value)))


def _number(value: Any) -> float | int:
    """Milliseconds of a moment; other values are numbers already."""
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return moment.timestamp() * 1000
