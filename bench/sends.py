"""Sends in every shape side by side: rate, CPU per message, and the load generator's own share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.rows import Row, console
from bench.servers import Brokers, both_brokers, cpu_seconds, in_turn
from bench.shapes import SHAPES

Load = Callable[..., dict]
_GROUP = 4  # shapes that share a pair of brokers; the next ones start on empty stores, within the page cache
CPU_GOAL = 2.0  # at most half of Java's
LOAD_CPU_MAX = 0.5  # of a core: so the load generator could drive twice what the faster broker takes


def measure_shapes(
    folder: Path, load: Load, *, rounds: int, seconds: float, names: Sequence[str] | None = None, quick: bool = False
) -> list[Row]:
    """A quick run has one pair of brokers for all, and warms up with one shape."""
    chosen = list(names or SHAPES)
    size = len(chosen) if quick else _GROUP
    rows: dict[str, tuple[Row, Row]] = {name: _rows(name) for name in chosen}
    busiest: dict[str, float] = {}
    for first in range(0, len(chosen), size):
        group = chosen[first : first + size]
        with both_brokers(folder / str(first)) as brokers:
            for number in range(-1, rounds):  # the first round warms up: Java compiles, both make their files
                for name in group[:1] if quick and number < 0 else group:
                    for side in in_turn(number):
                        create = number < 0 or quick
                        result, cpu_us = _round(load, brokers, side, name, seconds, create=create)
                        if number >= 0:
                            keep(rows[name], side, result["per_second"], cpu_us)
                            busiest[name] = max(busiest.get(name, 0), result["load_cpu"])
                console.print(f"  {', '.join(group)}: round {number + 1} of {rounds}")
    name = max(busiest, key=lambda name: busiest[name])
    verdict = "" if busiest[name] <= LOAD_CPU_MAX else f"; above {LOAD_CPU_MAX:.0%} it may be the limit itself"
    console.print(f"  the load generator took at most {busiest[name]:.0%} of a core, in {name}{verdict}")
    return [row for pair in rows.values() for row in pair]


def _rows(name: str) -> tuple[Row, Row]:
    title = f"sends, {SHAPES[name].title}"
    return (
        Row(title, "messages/s", f">= {SHAPES[name].goal:g}"),
        Row(f"CPU of {title}", "us", f">= {CPU_GOAL:g}", higher_is_better=False),
    )


def _round(load: Load, brokers: Brokers, side: str, name: str, seconds: float, *, create: bool) -> tuple[dict, float]:
    """What the load generator reports, and the broker's CPU per message in us."""
    words = ["--shape", name, "--seconds", seconds, *([] if create else ["--created"])]
    before = cpu_seconds(brokers.pids[side])
    result = load("shape", brokers.addresses[side], f"Shape_{name}", *words)
    if result["lost"]:
        console.print(f"  {name}: {side} stored {result['count']} of {result['sent']}")
    return result, (cpu_seconds(brokers.pids[side]) - before) / result["sent"] * 1e6


def keep(rows: tuple[Row, ...], side: str, *figures: float) -> None:
    """One round's figures."""
    for row, figure in zip(rows, figures, strict=True):
        getattr(row, side).append(figure)
