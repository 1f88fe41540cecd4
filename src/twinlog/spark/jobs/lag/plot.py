"""Lag over time as one HTML file without other files: charts as inline SVG, for light and dark backgrounds.

Pure: points in, text out. A chart has one line for each group or replica; if there are too many, the lines with the
least lag become one line. A gap in the samples is a gap in the line.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 16, 36
LINES_MAX = 8
POINTS_MAX = 600
COLOURS = ("#4477aa", "#ee6677", "#228833", "#bb8811", "#3399bb", "#aa3377", "#cc6622", "#777777", "#999999")
_STEPS_S = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000)
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --faint: #ccc; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --faint: #444; --ground: #181818; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2em auto;
       max-width: 980px; padding: 0 10px; }
h1 { font-size: 1.3em; } h2 { font-size: 1.05em; margin: 1.6em 0 .2em; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; }
.axis { stroke: var(--ink); } .grid { stroke: var(--faint); stroke-width: .5; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.legend span { display: inline-block; margin-right: 1.2em; }
.legend i { display: inline-block; width: 1.2em; height: 3px; vertical-align: middle; margin-right: .4em; }
.note { opacity: .75; }
"""

Points = Sequence[tuple[float, float]]  # (seconds since 1970, value), oldest first


@dataclass(frozen=True, slots=True)
class Chart:
    """What one picture shows; `unit` is written beside its values."""

    title: str
    unit: str
    lines: Mapping[str, Points]


def page(title: str, charts: Iterable[Chart], *, every_s: float = 60.0, notes: Sequence[str] = ()) -> str:
    """The whole HTML file."""
    parts = [draw(chart, every_s) for chart in charts if chart.lines]
    notes_text = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)
    body = "".join(parts) or "<p>There are no samples yet.</p>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>{body}{notes_text}</body></html>\n"
    )


def draw(chart: Chart, every_s: float = 60.0) -> str:
    """A heading, a picture and its legend."""
    lines = {name: thinned(points, POINTS_MAX) for name, points in worst_first(chart.lines, LINES_MAX).items()}
    times = [at for points in lines.values() for at, _ in points]
    begin, end = min(times), max(times)
    if end - begin < every_s:
        begin, end = begin - every_s, end + every_s
    top = nice_ceiling(max((value for points in lines.values() for _, value in points), default=0))

    def x(at: float) -> float:
        return round(LEFT + (at - begin) / (end - begin) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(chart.title)}">']
    for number in range(5):
        value = top * number / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{short(value)}</text>')
    for at, label in time_ticks(begin, end):
        parts.append(
            f'<line class="axis" x1="{x(at)}" x2="{x(at)}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        )
        parts.append(f'<text x="{x(at)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    parts.append(
        f'<path class="axis" fill="none" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
        f'<text x="14" y="{(HEIGHT - BOTTOM + TOP) // 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(HEIGHT - BOTTOM + TOP) // 2})">{html.escape(chart.unit)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">time, UTC</text>'
    )
    for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
        gap = max(2.5 * every_s, 2.5 * (end - begin) / POINTS_MAX)
        for run in unbroken(points, gap):
            tooltip = f"<title>{html.escape(name)}</title>"
            if len(run) == 1:
                place = f'cx="{x(run[0][0])}" cy="{y(run[0][1])}"'
                parts.append(f'<circle {place} r="3" fill="{colour}">{tooltip}</circle>')
            else:
                path = " ".join(f"{x(at)},{y(value)}" for at, value in run)
                parts.append(f'<polyline class="line" stroke="{colour}" points="{path}">{tooltip}</polyline>')
    parts.append("</svg>")
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}: {short(points[-1][1])}</span>'
        for (name, points), colour in zip(lines.items(), COLOURS, strict=False)
    )
    return f'<h2>{html.escape(chart.title)}</h2>{"".join(parts)}<p class="legend">{legend}</p>'


def worst_first(lines: Mapping[str, Points], count_max: int) -> dict[str, Points]:
    """The lines by their highest value; those beyond `count_max` as one, the highest of them at each moment."""
    order = sorted((name for name in lines if lines[name]), key=lambda name: (-max(v for _, v in lines[name]), name))
    if len(order) <= count_max:
        return {name: lines[name] for name in order}
    rest: dict[float, float] = {}
    for name in order[count_max:]:
        for at, value in lines[name]:
            rest[at] = max(value, rest.get(at, value))
    kept = {name: lines[name] for name in order[:count_max]}
    return {**kept, f"highest of {len(order) - count_max} others": sorted(rest.items())}


def thinned(points: Points, count_max: int) -> Points:
    """At most so many points, each the highest of its share: peaks are kept."""
    if len(points) <= count_max:
        return points
    share = -(-len(points) // count_max)
    return [max(points[at : at + share], key=lambda point: point[1]) for at in range(0, len(points), share)]


def unbroken(points: Points, gap_s: float) -> list[list[tuple[float, float]]]:
    """The points in runs without a gap."""
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if runs and point[0] - runs[-1][-1][0] <= gap_s:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def nice_ceiling(value: float) -> float:
    """The next round number for the end of an axis: 1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value * 0.999999)


def short(value: float) -> str:
    """A number in few letters: 950, 12.5k, 3M."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def time_ticks(begin: float, end: float, count_max: int = 8) -> list[tuple[float, str]]:
    """Round moments between two others, and how to write them."""
    step = next((step for step in _STEPS_S if (end - begin) / step <= count_max), _STEPS_S[-1])
    pattern = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m-%d"
    if step < 86400 and datetime.fromtimestamp(begin, UTC).date() != datetime.fromtimestamp(end, UTC).date():
        pattern = f"%m-%d {pattern}"
    first = math.ceil(begin / step) * step
    ticks = []
    while first <= end and len(ticks) <= 2 * count_max:
        ticks.append((float(first), datetime.fromtimestamp(first, UTC).strftime(pattern)))
        first += step
    return ticks
