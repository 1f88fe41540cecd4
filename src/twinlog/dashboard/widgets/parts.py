"""Small pieces of markup: states, tiles, tables, bars. No I/O, no elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinlog.dashboard.markup import Markup, Part, icon, tag
from twinlog.observe.cluster.health import Health, Level
from twinlog.observe.units import UNKNOWN, percent_text

_STATE_CLASS = {Level.OK: "ok", Level.UNKNOWN: "unknown", Level.WARNING: "warning", Level.CRITICAL: "critical"}
_STATE_ICON = {Level.OK: "check_circle", Level.UNKNOWN: "help", Level.WARNING: "warning", Level.CRITICAL: "error"}
_UNKNOWN = tag("span", UNKNOWN, cls="tl-unknown-value")


def level_class(level: Level) -> str:
    return _STATE_CLASS[level]


def pill(level: Level, text: str | None = None) -> Markup:
    """A state as a word and a sign, so that colour is never the only difference."""
    return tag("span", icon(_STATE_ICON[level]), text or level.word, cls=f"tl-pill tl-{_STATE_CLASS[level]}")


def health_cell(health: Health) -> Markup:
    return tag("div", pill(health.level), tag("span", health.reason, cls="tl-reason"), cls="tl-health")


def tile(label: str, value: Part, note: Part = None, level: Level | None = None) -> Markup:
    """One number with its name; `level` colours it."""
    cls = "tl-tile" if level is None else f"tl-tile tl-tile-{_STATE_CLASS[level]}"
    return tag(
        "div",
        tag("div", label, cls="tl-tile-label"),
        tag("div", value, cls="tl-tile-value"),
        tag("div", note, cls="tl-tile-note") if note else None,
        cls=cls,
    )


def tiles(*parts: Markup) -> Markup:
    return tag("div", *parts, cls="tl-tiles")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Part]],
    *,
    caption: str,
    numbers: Iterable[str] = (),
    empty: str = "nothing to show",
    row_ids: Sequence[str] | None = None,
) -> Markup:
    """A table that becomes a list of cards on a narrow screen. `numbers` are the columns that align right."""
    right = set(numbers)
    found = list(rows)
    if not found:
        return tag("p", empty, cls="tl-empty")
    classes = ["tl-number" if name in right else "" for name in columns]
    head = tag("tr", *(tag("th", name, scope="col", cls=cls) for name, cls in zip(columns, classes, strict=True)))
    body = [
        tag(
            "tr",
            *(
                tag("td", tag("div", _known(cell), cls="tl-cell"), cls=cls, data_label=name)
                for name, cls, cell in zip(columns, classes, row, strict=True)
            ),
            id=row_ids[at] if row_ids is not None else None,
        )
        for at, row in enumerate(found)
    ]
    inner = tag("table", tag("caption", caption, cls="tl-hidden"), tag("thead", head), tag("tbody", *body))
    return tag("div", inner, cls="tl-table", tabindex="0", role="region", aria_label=caption)


def bar(share: float | None, level: Level = Level.OK) -> Markup:
    """How full something is, as a number and as a bar."""
    if share is None:
        return _UNKNOWN
    width = f"width:{max(0.0, min(1.0, share)) * 100:.0f}%"
    fill = tag("span", cls=f"tl-bar-fill tl-bar-{_STATE_CLASS[level]}", style=width)
    return tag(
        "div", tag("span", percent_text(share)), tag("span", fill, cls="tl-bar", aria_hidden="true"), cls="tl-fill"
    )


def panel_title(text: str, note: Part = None) -> Markup:
    return tag("div", tag("h2", text), tag("p", note, cls="tl-muted") if note else None, cls="tl-panel-title")


def _known(cell: Part) -> Part:
    """`cell`; a value that nobody knows is drawn as such."""
    return _UNKNOWN if cell is None or cell == UNKNOWN else cell
