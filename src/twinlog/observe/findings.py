"""What a diagnosis finds: a statement, the numbers behind it, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Weight(IntEnum):
    """In the order of urgency."""

    FINE = 0  # it works
    NOTE = 1  # it works, and may explain what is seen
    PROBLEM = 2  # this is why it does not work


@dataclass(frozen=True, slots=True)
class Finding:
    weight: Weight
    what: str
    evidence: tuple[str, ...] = ()
    todo: str = ""


def problem(what: str, todo: str, *evidence: str) -> Finding:
    return Finding(Weight.PROBLEM, what, evidence, todo)


def note(what: str, todo: str, *evidence: str) -> Finding:
    return Finding(Weight.NOTE, what, evidence, todo)


def fine(what: str, *evidence: str) -> Finding:
    return Finding(Weight.FINE, what, evidence)


def sorted_findings(found: Iterable[Finding]) -> list[Finding]:
    """The most urgent first; within one weight as the rules gave them."""
    return sorted(found, key=lambda one: -one.weight)


def shortened(items: Sequence[object], shown_max: int = 4) -> str:
    """The first of `items`, and how many more there are."""
    more = f" and {len(items) - shown_max} more" if len(items) > shown_max else ""
    return ", ".join(map(str, items[:shown_max])) + more
