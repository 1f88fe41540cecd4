"""Draws the pictures of the documents from bench/results/latest.json.

python -m bench.plot            writes docs/metadata-growth.svg and docs/growth.svg

The first shows what a metadata tick moves as the tables grow; `growth_plot` draws the second.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

from bench.growth_plot import draw_growth
from bench.growth_plot import text as _text

LATEST = Path(__file__).parent / "results" / "latest.json"
DOCUMENTS = Path(__file__).parent.parent / "docs"
_TOPICS = (1_000, 10_000, 100_000)
_WHOLE = "bytes of the topic table, which a Java replica gets at every tick"
_LINES = (  # what the row is called, what the line is called, which side, colour, labels above or below
    (_WHOLE, "Java: the whole topic table", "java", "#d9480f", -9),
    ("bytes of a tick with one changed topic", "Twinlog: one topic changed", "twinlog", "#1971c2", -9),
    ("bytes of an idle tick", "Twinlog: nothing changed", "twinlog", "#2f9e44", 18),
)
_LEFT, _TOP, _WIDTH, _HEIGHT = 80, 40, 440, 240
_DECADES = (2, 8)  # the axis goes from 100 bytes to 100 MB


def draw(rows: dict[str, dict]) -> str:
    """The picture, with both axes logarithmic."""
    parts = [_text(_LEFT, 20, "Bytes that one metadata tick moves", "start", "bold")]
    for decade in range(_DECADES[0], _DECADES[1] + 1):
        y = _y(10**decade)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(_text(_LEFT - 8, y + 4, _bytes(10**decade), "end"))
    for topics in _TOPICS:
        parts.append(_text(_x(topics), _TOP + _HEIGHT + 20, f"{topics:,}", "middle"))
    parts.append(_text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 42, "topics", "middle"))
    for row, name, side, colour, label in _LINES:
        points = [(topics, _figure(rows, topics, row, side)) for topics in _TOPICS]
        path = " ".join(f"{_x(topics):.1f},{_y(value):.1f}" for topics, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for topics, value in points:
            parts.append(f'<circle cx="{_x(topics):.1f}" cy="{_y(value):.1f}" r="4" fill="{colour}"/>')
            parts.append(_text(_x(topics), _y(value) + label, _bytes(value), "middle"))
        parts.append(_text(_LEFT + _WIDTH + 14, _y(points[-1][1]) + 4 + label / 2, name, "start", colour=colour))
    size = f'width="{_LEFT + _WIDTH + 230}" height="{_TOP + _HEIGHT + 56}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def _figure(rows: dict[str, dict], topics: int, name: str, side: str) -> float:
    return statistics.median(rows[f"metadata, {topics:,} topics: {name}"][side])


def _x(topics: int) -> float:
    return _LEFT + 40 + (math.log10(topics) - 3) / 2 * (_WIDTH - 80)


def _y(value: float) -> float:
    low, high = _DECADES
    return _TOP + _HEIGHT - (math.log10(value) - low) / (high - low) * _HEIGHT


def _bytes(value: float) -> str:
    for unit, size in (("MB", 1e6), ("KB", 1e3)):
        if value >= size:
            return re.sub(r"\.0$", "", f"{value / size:.1f}") + f" {unit}"
    return f"{value:.0f} B"


def main() -> None:
    rows = {row["name"]: row for row in json.loads(LATEST.read_text())["rows"]}
    for name, picture in (("metadata-growth.svg", draw(rows)), ("growth.svg", draw_growth(rows))):
        (DOCUMENTS / name).write_text(picture)
        print(DOCUMENTS / name)


if __name__ == "__main__":
    main()
