"""HTML that cannot be broken out of: text is escaped, only `Markup` is taken as it is."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """HTML made here."""

    __slots__ = ()

    def __add__(self, other: str) -> Markup:
        return Markup(str(self) + join(other))


Part = Markup | str | int | None | Iterable["Part"]
_VOID = frozenset({"br", "hr", "img", "meta", "link", "input", "path", "circle"})


def tag(element: str, /, *children: Part, cls: str = "", **attributes: str | int | bool | None) -> Markup:
    """`<element …>children</element>`; a trailing _ of an attribute's name is dropped, other _ become -."""
    words = {"class": cls or None} | {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(_attribute(key, value) for key, value in words.items() if value not in (None, False))
    if element in _VOID:
        return Markup(f"<{element}{shown}>")
    return Markup(f"<{element}{shown}>{join(children)}</{element}>")


def join(parts: Part) -> Markup:
    """All parts behind each other, text escaped."""
    if parts is None:
        return Markup("")
    if isinstance(parts, Markup):
        return parts
    if isinstance(parts, str | int):
        return Markup(html.escape(str(parts)))
    return Markup("".join(join(one) for one in parts))


def icon(name: str) -> Markup:
    """A glyph of the font that NiceGUI brings; readers of screens skip it."""
    return tag("span", name, cls="material-icons", aria_hidden="true")


def _attribute(key: str, value: str | int | bool | None) -> str:
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
