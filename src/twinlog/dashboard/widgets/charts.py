"""Lines over time, drawn by ECharts, which NiceGUI brings along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from twinlog.dashboard.markup import tag
from twinlog.dashboard.widgets.live import LiveHtml

Points = Sequence[tuple[int, float | None]]
POINTS_MAX = 240  # of a line, however long the time
_COLORS = ["#3b74e8", "#d98a1f", "#2f9e6b", "#9460d8", "#cf4a6b", "#3a9fb5"]
_GREY = "#8390a2"
# The same steps as observe.units, in the language of the browser.
_FORMATS = {
    "bytes": "v => { if (v == null) return 'unknown'; const u = ['B','KiB','MiB','GiB','TiB']; let i = 0; "
    "while (Math.abs(v) >= 1024 && i < 4) { v /= 1024; i++; } return (i ? v.toFixed(1) : v.toFixed(0)) + ' ' + u[i]; }",
    "bytes/s": "v => { if (v == null) return 'unknown'; const u = ['B','KiB','MiB','GiB','TiB']; let i = 0; "
    "while (Math.abs(v) >= 1024 && i < 4) { v /= 1024; i++; } "
    "return (i ? v.toFixed(1) : v.toFixed(0)) + ' ' + u[i] + '/s'; }",
    "s": "v => v == null ? 'unknown' : (+v.toFixed(1)) + ' s'",
    "msg": "v => v == null ? 'unknown' : v.toLocaleString('en') + ' msg'",
    "msg/s": "v => v == null ? 'unknown' : (+v.toFixed(1)).toLocaleString('en') + ' msg/s'",
}


class LineChart:
    """A titled chart with its newest values in words below the title; `unit` is a key of the formats above."""

    def __init__(self, title: str, unit: str, text: Callable[[float | None], str]) -> None:
        self._title, self._text = title, text
        with ui.element("figure").classes("tl-chart"):
            self._caption = LiveHtml(tag="figcaption")
            self._in_bytes = unit.startswith("bytes")
            options = _options(_FORMATS[unit], is_whole=unit in ("bytes", "msg"))
            self._chart = ui.echart(options, renderer="svg").classes("tl-chart-canvas")
            self._chart.props('role="img"')
            self._chart.props["aria-label"] = title

    def show(self, lines: Mapping[str, Points]) -> None:
        """Draw these lines; the name of each is shown when there are several."""
        newest = {name: self._text(points[-1][1] if points else None) for name, points in lines.items()}
        words = [f"{name}: {value}" if len(lines) > 1 else value for name, value in newest.items()]
        now = tag("span", ", ".join(words) or "no data yet", cls="tl-chart-now")
        self._caption.show(tag("span", self._title) + now)
        series = [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                "connectNulls": False,
                "lineStyle": {"width": 2},
                "areaStyle": {"opacity": 0.08} if len(lines) == 1 else None,
                "data": [[at_ms, value] for at_ms, value in thin(points)],
            }
            for name, points in lines.items()
        ]
        if series != self._chart.options["series"]:
            self._chart.options["series"] = series
            self._chart.options["legend"]["show"] = len(lines) > 1
            if self._in_bytes:
                highest = max((value or 0 for points in lines.values() for _, value in points), default=0)
                step = byte_step(highest)
                self._chart.options["yAxis"] |= {"interval": step, "max": step * max(1, -(-highest // step))}
            self._chart.update()


def thin(points: Points, points_max: int = POINTS_MAX) -> list[tuple[int, float | None]]:
    """At most `points_max` of them: the highest of each run, so that no peak is lost."""
    if len(points) <= points_max:
        return list(points)
    step = -(-len(points) // points_max)
    runs = (points[at : at + step] for at in range(0, len(points), step))
    return [max(run, key=lambda one: -1.0 if one[1] is None else one[1]) for run in runs]


def byte_step(highest: float, lines_max: int = 4) -> int:
    """Between two lines of a chart of bytes: a power of two, so that each has a round number of KiB or MiB."""
    step = 1
    while step * lines_max < highest:
        step *= 2
    return step


def _options(formatter: str, *, is_whole: bool) -> dict[str, Any]:
    return {
        "animation": False,
        "color": _COLORS,
        "grid": {"left": 8, "right": 28, "top": 28, "bottom": 4, "containLabel": True},
        "legend": {"show": False, "top": 0, "left": 0, "icon": "roundRect", "textStyle": {"color": _GREY}},
        "tooltip": {"trigger": "axis", ":valueFormatter": formatter, "confine": True},
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": _GREY}},
            "axisLabel": {"color": _GREY, "hideOverlap": True, "margin": 14, "formatter": "{HH}:{mm}:{ss}"},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1 if is_whole else 0.1,
            "axisLabel": {"color": _GREY, ":formatter": formatter},
            "splitLine": {"lineStyle": {"color": _GREY, "opacity": 0.18}},
            "splitNumber": 3,
        },
        "series": [],
    }
