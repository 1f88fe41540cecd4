"""Measured quantities, and the table that shows them."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from bench.servers import JAVA_VERSION

console = Console(width=None if sys.stdout.isatty() else 150)


@dataclass
class Row:
    """One measured quantity for both, round by round."""

    name: str
    unit: str
    goal: str
    higher_is_better: bool = True
    twinlog: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """How many times better Twinlog is: above 1 is better, whatever the unit."""
        if not self.twinlog or not self.java:
            return None
        ours, theirs = statistics.median(self.twinlog), statistics.median(self.java)
        over, under = (ours, theirs) if self.higher_is_better else (theirs, ours)
        return over / under if under else None

    @property
    def noise(self) -> float | None:
        """Java against Java: odd rounds over even rounds."""
        odd, even = self.java[1::2], self.java[::2]
        base = statistics.median(even) if even else 0
        return statistics.median(odd) / base if odd and base else None


def print_table(rows: list[Row]) -> None:
    table = Table(title=f"Twinlog and Java {JAVA_VERSION}, medians of alternating rounds")
    for heading in ("", "unit", "Twinlog", "Java", "ratio", "goal", "Java / Java"):
        table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
    for row in rows:
        ours = statistics.median(row.twinlog) if row.twinlog else None
        theirs = statistics.median(row.java) if row.java else None
        table.add_row(
            row.name, row.unit, _number(ours), _number(theirs), _ratio(row.ratio), row.goal, _ratio(row.noise)
        )
    console.print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
