"""Writes the tables of docs/benchmarks.md and README.md from bench/results/latest.json.

    python -m bench.tables

A table stands between `<!-- bench: PART PART ... -->` and `<!-- end of bench -->`, and has the rows of these parts; the
part `readme` is the short list below.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from bench.rows import number_text, ratio_text

ROOT = Path(__file__).parent.parent
LATEST = Path(__file__).parent / "results" / "latest.json"
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
_PLACE = re.compile(r"(<!-- bench: ([a-z -]+) -->\n)(.*?)(<!-- end of bench -->)", re.DOTALL)
_RATED = {"shapes": "sends,", "java-client": "Java client,"}
_UNITS = {"messages/s": "/s", "MB RSS": "MB"}
# README's rows, by the begin of their names; the best and the worst shape and the worst of the Java client are found.
README_ROWS = (
    "sends, queues in turn, keys and a traceparent that differ",
    "CPU of sends, queues in turn, keys and a traceparent that differ",
    "pulls of 32 x 1 KiB",
    "memory of an idle broker",
    "catch-up of 2048 MiB, 4 KiB messages",
    "SYNC_MASTER with one replica, 4 x 64 in flight, 128 B",
    "Spark write to a Twinlog broker, 1 KiB",
)


def written(page: str, rows: list[dict]) -> str:
    """The page with its tables made anew."""
    return _PLACE.sub(lambda found: f"{found[1]}{table(found[2], rows)}{found[4]}", page)


def table(parts: str, rows: list[dict]) -> str:
    if parts == "readme":
        lines = ["| | Twinlog | Java 5.5.0 | ratio |", "|---|--:|--:|--:|"]
        return "\n".join([*lines, *(_line(row, columns=4) for row in _readme_rows(rows))]) + "\n"
    chosen = [row for part in parts.split() for row in rows if row["part"] == part]
    if not chosen:
        return "No figures yet.\n"
    lines = ["| | Twinlog | Java 5.5.0 | ratio | goal | Java / Java |", "|---|--:|--:|--:|--:|--:|"]
    return "\n".join([*lines, *map(_line, chosen)]) + "\n"


def _readme_rows(rows: list[dict]) -> list[dict]:
    """The short list: at most ten, with the worst beside the best."""
    rates = {part: [row for row in rows if row["part"] == part and row["unit"] == "messages/s"] for part in _RATED}
    found = []
    for part, text in _RATED.items():
        ordered = sorted(rates[part], key=lambda row: -row["ratio"])
        ends = {"best": ordered[0], "worst": ordered[-1]} if ordered else {}
        found += [{**row, "name": f"{text} {end}: {_title(row)}"} for end, row in ends.items()]
    chosen = [next((row for row in rows if row["name"].startswith(name)), None) for name in README_ROWS]
    return [*found, *(row for row in chosen if row is not None)]


def _title(row: dict) -> str:
    return row["name"].split(", ", 1)[1]


def _line(row: dict, columns: int = 6) -> str:
    goal = f"**missed**: {row['goal']}" if row.get("met") is False else row["goal"]
    figures = [_figure(row["twinlog"], row["unit"]), _figure(row["java"], row["unit"])]
    cells = [row["name"], *figures, ratio_text(row["ratio"]), goal, ratio_text(row["java_against_java"])]
    return "| " + " | ".join(cells[:columns]) + " |"


def _figure(rounds: list[float], unit: str) -> str:
    return f"{number_text(statistics.median(rounds))} {_UNITS.get(unit, unit)}" if rounds else "-"


def main() -> None:
    rows = json.loads(LATEST.read_text())["rows"]
    for path in PAGES:
        path.write_text(written(path.read_text(), rows))
        print(path)


if __name__ == "__main__":
    main()
