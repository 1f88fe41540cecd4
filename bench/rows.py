"""Measured quantities, and the table that shows them."""

from __future__ import annotations

import re
import statistics
import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from bench.servers import JAVA_VERSION

_GOAL = re.compile(r"([<>]=) ([0-9.,]+)(.*)")
console = Console(width=None if sys.stdout.isatty() else 150)


@dataclass
class Row:
    """One measured quantity for both, round by round."""

    name: str
    unit: str
    goal: str  # ">= 1.5" is a ratio, ">= 1 GB/s" and "<= 100 MB" are our own figures; the rest is for the reader
    higher_is_better: bool = True
    twinlog: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)
    part: str = ""  # by which `--only` measures it

    @property
    def ratio(self) -> float | None:
        """How many times better Twinlog is: above 1 is better, whatever the unit."""
        if not self.twinlog or not self.java:
            return None
        ours, theirs = statistics.median(self.twinlog), statistics.median(self.java)
        over, under = (ours, theirs) if self.higher_is_better else (theirs, ours)
        return over / under if under else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met: ">= X" alone is about the ratio, all else about our own figure; None if unknown."""
        found = _GOAL.match(self.goal)
        if found is None or not self.twinlog:
            return None
        limit = float(found[2].replace(",", ""))
        if found[1] == "<=":
            return statistics.median(self.twinlog) <= limit
        reached = statistics.median(self.twinlog) if found[3] else self.ratio
        return None if reached is None else reached >= limit

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
        goal = f"[bold red]missed: {row.goal}[/]" if row.met is False else row.goal
        figures = (number_text(ours), number_text(theirs), ratio_text(row.ratio), goal, ratio_text(row.noise))
        table.add_row(row.name, row.unit, *figures)
    console.print(table)
    judged = [row.met for row in rows if row.met is not None]
    if judged:
        console.print(f"{sum(judged)} of {len(judged)} goals are met")


def number_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def ratio_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
