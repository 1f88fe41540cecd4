"""Sends in every shape side by side: rate, CPU per message, and the load generator's own share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.rows import Row, console
from bench.servers import cpu_seconds, side_by_side
from bench.shapes import SHAPES

Load = Callable[..., dict]
_GROUP = 4  # shapes that share a pair of brokers; the next ones start on empty stores, within the page cache
CPU_GOAL = 2.0  # at most half of Java's
LOAD_CPU_MAX = 0.5  # of a core: so the load generator could drive twice what the faster broker takes


def measure_shapes(
    folder: Path, load: Load, *, rounds: int, seconds: float, names: Sequence[str] | None = None
) -> list[Row]:
    chosen = list(names or SHAPES)
    rows: dict[str, tuple[Row, Row]] = {name: _rows(name) for name in chosen}
    busiest: dict[str, float] = {}
    for first in range(0, len(chosen), _GROUP):
        group = chosen[first : first + _GROUP]

        def part(addresses: dict[str, str], pids: dict[str, int], group: list[str] = group) -> None:
            for number in range(-1, rounds):  # the first round warms up: Java compiles, both make their files
                for name in group:
                    for side in ("java", "twinlog") if number % 2 else ("twinlog", "java"):
                        words = ["--shape", name, "--seconds", seconds, *(["--created"] if number >= 0 else [])]
                        before = cpu_seconds(pids[side])
                        result = load("shape", addresses[side], f"Shape_{name}", *words)
                        cpu_us = (cpu_seconds(pids[side]) - before) / result["sent"] * 1e6
                        if result["lost"]:
                            console.print(f"  {name}: {side} stored {result['count']} of {result['sent']}")
                        if number >= 0:
                            _keep(rows[name], side, result["per_second"], cpu_us)
                            busiest[name] = max(busiest.get(name, 0), result["load_cpu"])
                console.print(f"  {', '.join(group)}: round {number + 1} of {rounds}")

        side_by_side(folder / str(first), part)
    busy = [f"{name} {share:.0%}" for name, share in busiest.items() if share > LOAD_CPU_MAX]
    if busy:
        console.print(f"  the load generator took more than {LOAD_CPU_MAX:.0%} of a core: {', '.join(busy)}")
    return [row for pair in rows.values() for row in pair]


def _rows(name: str) -> tuple[Row, Row]:
    title = f"sends, {SHAPES[name].title}"
    return (
        Row(title, "messages/s", f">= {SHAPES[name].goal:g}"),
        Row(f"CPU of {title}", "us", f">= {CPU_GOAL:g}", higher_is_better=False),
    )


def _keep(rows: tuple[Row, Row], side: str, *figures: float) -> None:
    for row, figure in zip(rows, figures, strict=True):
        getattr(row, side).append(figure)
