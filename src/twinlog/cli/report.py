"""The result of a command, and its three forms: rich tables on a terminal, plain columns in a pipe, JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

import msgspec


@dataclass(slots=True)
class Table:
    columns: Sequence[str]
    rows: list[Sequence[Any]]
    title: str = ""


@dataclass(slots=True)
class Report:
    """Tables, then lines. `data` is what --json prints; by default the rows as objects, or the lines."""

    tables: list[Table] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    data: Any = None

    def as_data(self) -> Any:
        if self.data is not None:
            return self.data
        if self.tables:
            rows = [dict(zip(t.columns, row, strict=True)) for t in self.tables for row in t.rows]
            return [{"title": t.title, "rows": t.rows} for t in self.tables] if len(self.tables) > 1 else rows
        return self.lines


def table(
    columns: str, rows: Iterable[Sequence[Any]], *, title: str = "", data: Any = None, lines: Iterable[str] = ()
) -> Report:
    """One table; `columns` are separated by commas."""
    names = [name.strip() for name in columns.split(",")]
    return Report([Table(names, list(rows), title)], list(lines), data)


def text_report(*lines: str, data: Any = None) -> Report:
    """Lines without a table."""
    return Report(lines=list(lines), data=data)


def pairs(values: Mapping[str, Any], *, title: str = "", data: Any = None) -> Report:
    """Names and values below each other."""
    rows: list[Sequence[Any]] = list(values.items())
    return Report([Table(["Name", "Value"], rows, title)], [], dict(values) if data is None else data)


def joined(reports: Sequence[Report], data: Any = None) -> Report:
    tables = [found for report in reports for found in report.tables]
    return Report(tables, [line for report in reports for line in report.lines], data)


def show(report: Report, out: TextIO, *, as_json: bool) -> None:
    """Print `report` as JSON, or in the form that suits `out`."""
    if as_json:
        out.write(json.dumps(plain(report.as_data()), ensure_ascii=False, indent=2 if out.isatty() else None) + "\n")
    elif out.isatty():
        _show_rich(report, out)
    else:
        out.write(_columns(report))


def plain(value: Any) -> Any:
    """`value` in the types of JSON; message queues as keys become text."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {wire: plain(getattr(value, attribute)) for wire, attribute in names}
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def when(ms: int | None) -> str:
    """A moment in local time, with milliseconds; empty for none."""
    if not ms or ms < 0:
        return ""
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S,") + f"{ms % 1000:03d}"


def _key(key: Any) -> str:
    if isinstance(key, msgspec.Struct):
        return "/".join(str(getattr(key, name)) for name in key.__struct_fields__)
    return "/".join(str(value) for _, value in key) if isinstance(key, tuple) else str(key)


def rich_parts(report: Report) -> list[Any]:
    """The tables and lines as rich renders them on a terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    parts: list[Any] = []
    for each in report.tables:
        shown = RichTable(title=each.title or None, box=box.SIMPLE_HEAD, title_justify="left", header_style="bold cyan")
        for i, name in enumerate(each.columns):
            numbers = bool(each.rows) and all(isinstance(row[i], int | float) for row in each.rows)
            shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in each.rows:
            shown.add_row(*(Text(_cell(value)) for value in row))
        parts.append(shown)
    return parts + [Text(line) for line in report.lines]


def _show_rich(report: Report, out: TextIO) -> None:
    from rich.console import Console

    console = Console(file=out, highlight=False)
    for part in rich_parts(report):
        console.print(part)


def _columns(report: Report) -> str:
    out = io.StringIO()
    for each in report.tables:
        if each.title:
            out.write(f"{each.title}\n")
        lines = [[f"#{name}" for name in each.columns], *([_cell(value) for value in row] for row in each.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(each.columns))]
        for line in lines:
            out.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")
    for line in report.lines:
        out.write(line + "\n")
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
