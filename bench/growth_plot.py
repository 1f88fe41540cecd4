"""The picture of the growth parts: one panel for each thing there may be more of.

A panel has one line for each scene and side. Its horizontal axis has the sizes at equal distances, its vertical axis
begins at 0, so a cost that does not grow is a level line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OURS, OURS_TOO, JAVA, JAVA_TOO = "#1971c2", "#2f9e44", "#d9480f", "#e8a33d"
COLUMNS = 2
_WIDTH, _HEIGHT = 250, 150  # of the area between the axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 58, 190, 62
GREY = "#868e96"


@dataclass(frozen=True)
class Line:
    """One line: the row's name with `{}` for the size, the side that it shows, and how it is labelled."""

    row: str
    side: str
    label: str
    colour: str


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    across: str  # what the sizes count
    sizes: Sequence[int]
    lines: Sequence[Line]


def _both(row: str, text: str, colours: tuple[str, str]) -> list[Line]:
    return [Line(row, "twinlog", f"Twinlog, {text}", colours[0]), Line(row, "java", f"Java, {text}", colours[1])]


_TOPICS, _CONNECTIONS, _REPLICAS = (10, 1_000, 100_000), (10, 1_000, 5_000), (0, 1, 2, 4)
PANELS = (
    Panel(
        "CPU per send, topics",
        "us",
        "topics",
        _TOPICS,
        [
            *_both("{} topics, 10 in use: CPU per message", "10 in use", (OURS, JAVA)),
            *_both("{} topics, all in use: CPU per message", "all in use", (OURS_TOO, JAVA_TOO)),
        ],
    ),
    Panel(
        "Memory, topics",
        "MB",
        "topics",
        _TOPICS,
        [
            *_both("{} topics, 10 in use: memory", "10 in use", (OURS, JAVA)),
            *_both("{} topics, all in use: memory", "all in use", (OURS_TOO, JAVA_TOO)),
        ],
    ),
    Panel(
        "CPU per send, connections beside it",
        "us",
        "connections",
        _CONNECTIONS,
        [
            *_both("{} idle connections: CPU per message", "idle", (OURS, JAVA)),
            *_both("{} held pulls: CPU per message", "held pulls", (OURS_TOO, JAVA_TOO)),
        ],
    ),
    Panel(
        "CPU per message, sent and pulled",
        "us",
        "consumers",
        (1, 4, 16, 64),
        _both("{} consumers: CPU per message", "10,000 /s", (OURS, JAVA)),
    ),
    Panel(
        "CPU per send of the master",
        "us",
        "replicas",
        _REPLICAS,
        _both("{} replicas: CPU per message", "ASYNC_MASTER", (OURS, JAVA)),
    ),
    Panel(
        "Start with a log of this size",
        "s",
        "GiB",
        (1, 10, 30),
        [
            *_both("log of {} GiB, after a clean stop: ready", "clean", (OURS, JAVA)),
            *_both("log of {} GiB, after kill -9: ready", "kill -9", (OURS_TOO, JAVA_TOO)),
        ],
    ),
)


def draw_growth(rows: Mapping[str, Mapping]) -> str:
    """The whole picture; a figure that was not measured is left out of its line."""
    step_x, step_y = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    parts = []
    for number, panel in enumerate(PANELS):
        down, across = divmod(number, COLUMNS)
        parts += _panel(panel, rows, across * step_x + _LEFT, down * step_y + _TOP)
    size = f'width="{COLUMNS * step_x}" height="{-(-len(PANELS) // COLUMNS) * step_y}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def _panel(panel: Panel, rows: Mapping[str, Mapping], left: int, top: int) -> list[str]:
    lines = [(line, _points(line, panel.sizes, rows)) for line in panel.lines]
    top_value = _round_up(max((value for _, points in lines for _, value in points), default=1.0))
    bottom = top + _HEIGHT
    parts = [text(left - 45, top - 28, f"{panel.title} ({panel.unit})", "start", "bold")]
    for part in range(5):
        y = bottom - part / 4 * _HEIGHT
        parts.append(f'<line x1="{left}" x2="{left + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(text(left - 8, y + 4, f"{top_value * part / 4:g}", "end"))
    for number, size in enumerate(panel.sizes):
        parts.append(text(_x(number, panel.sizes, left), bottom + 18, f"{size:,}", "middle"))
    parts.append(text(left + _WIDTH / 2, bottom + 36, panel.across, "middle"))
    labels: list[float] = []
    for line, points in lines:
        if not points:
            continue
        placed = [(_x(number, panel.sizes, left), bottom - value / top_value * _HEIGHT) for number, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.colour}"/>' for x, y in placed]
        y = _free(placed[-1][1] + 4, labels)
        label = f"{line.label}: {_short(points[0][1])} to {_short(points[-1][1])}"
        parts.append(text(left + _WIDTH + 8, y, label, "start", colour=line.colour))
    return parts


def _points(line: Line, sizes: Sequence[int], rows: Mapping[str, Mapping]) -> list[tuple[int, float]]:
    found = [(number, rows.get(f"growth, {line.row.format(f'{size:,}')}")) for number, size in enumerate(sizes)]
    return [(number, statistics.median(row[line.side])) for number, row in found if row is not None and row[line.side]]


def _x(number: int, sizes: Sequence[int], left: int) -> float:
    return left + 25 + number / max(1, len(sizes) - 1) * (_WIDTH - 50)


def _free(y: float, taken: list[float]) -> float:
    """A place for a label at `y`, or the next one below that has none."""
    while any(abs(y - other) < 14 for other in taken):
        y += 1
    taken.append(y)
    return y


def _round_up(value: float) -> float:
    """The end of the axis: 1, 2, 4 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def text(x: float, y: float, words: str, anchor: str, weight: str = "normal", colour: str = GREY) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" fill="{colour}">{words}</text>'
