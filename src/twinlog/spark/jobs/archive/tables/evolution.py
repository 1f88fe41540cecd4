"""Which columns a table has after a run that brings other columns; pure.

the run has a column that the table lacks     the table gets it, older rows have null there
the table has a column that the run lacks     it stays, new rows have null there
both have it, with different types            refused
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.schema import Columns


@dataclass(frozen=True, slots=True)
class Evolution:
    """`added` columns come after the table's own; `absent` ones get no values from this run."""

    added: Columns
    absent: tuple[str, ...]


def plan_evolution(where: object, table: Columns, run: Columns) -> Evolution:
    """What happens to a table with columns `table` when a run writes columns `run`."""
    by_lower = {name.lower(): name for name in table}
    for name, kind in run.items():
        known = by_lower.get(name.lower())
        if known is not None and known != name:
            raise BadArchive(f"{where} has a column {known!r}, this run brings {name!r}: use the same letters")
        if known is not None and table[known] != kind:
            hint = "give the column another name, or archive to another directory"
            raise BadArchive(f"column {name!r} of {where} is {table[known]}, this run brings {kind}: {hint}")
    return Evolution(
        {name: kind for name, kind in run.items() if name not in table},
        tuple(name for name in table if name not in run),
    )
