"""Dialogs with fields. In: what to ask. Out: the values, or None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nicegui import ui

from twinlog.client import BadArgument
from twinlog.dashboard.markup import tag


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is text, number, choice or switch; `choices` are values with their names."""

    name: str
    label: str
    kind: str = "text"
    value: Any = ""
    choices: Mapping[Any, str] | None = None
    hint: str = ""
    is_fixed: bool = False


async def ask_form(title: str, fields: Sequence[Field], label: str, note: str = "") -> dict[str, Any] | None:
    """Show the fields; the values when the button is pressed, None when the dialog is left."""
    with ui.dialog().props("persistent") as dialog, ui.card().classes("tl-dialog"):
        dialog.props["aria-label"] = title
        ui.html(tag("h2", title) + (tag("p", note, cls="tl-muted") if note else ""), sanitize=False)
        inputs = {one.name: _input(one) for one in fields}
        with ui.row().classes("tl-dialog-buttons"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button(label, on_click=lambda: dialog.submit(True)).props("unelevated no-caps color=primary")
    try:
        if not await dialog:
            return None
        return {name: element.value for name, element in inputs.items()}
    finally:
        dialog.delete()


def _input(field: Field) -> Any:
    if field.kind == "switch":
        return ui.switch(field.label, value=bool(field.value))
    if field.kind == "choice":
        made: Any = ui.select(dict(field.choices or {}), label=field.label, value=field.value)
    elif field.kind == "number":
        made = ui.number(field.label, value=field.value, min=0, precision=0)
    else:
        made = ui.input(field.label, value=field.value)
    made.props("outlined dense").classes("tl-field")
    if field.hint:
        made.props["hint"] = field.hint
    if field.is_fixed:
        made.props("readonly")
    return made


def read_whole(values: Mapping[str, Any], name: str, label: str, low: int = 0) -> int:
    """The whole number of a field; BadArgument for one that is empty or too low."""
    value = values[name]
    if not isinstance(value, (int, float)) or not low <= value < 2**31 or value != int(value):
        raise BadArgument(f"{label}: give a whole number, at least {low}")
    return int(value)


def read_time(text: str) -> int:
    """Milliseconds of a local time such as 2026-01-31T12:00:00; BadArgument for anything else."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise BadArgument(f"{text!r} is not a time such as 2026-01-31T12:00:00") from None
