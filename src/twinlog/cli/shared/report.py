"""The result of a command, and its three forms: rich tables on a terminal, plain columns in a pipe, JSON."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

import msgspec

_GAP = 2  # spaces between two columns


@dataclass(slots=True)
class Table:
    """Rows under a title. `spare` are the columns that a terminal leaves out first when they do not all fit.

    `notes` stand below the table: sentences, for which a column would be too narrow.
    """

    columns: Sequence[str]
    rows: list[Sequence[Any]]
    title: str = ""
    notes: list[str] = field(default_factory=list)
    spare: Sequence[str] = ()


@dataclass(slots=True)
class Report:
    """Tables, then lines. `data` is what --json prints; by default the rows as objects, or the lines.

    `screen` are the tables for a terminal, where they differ from those for scripts.
    """

    tables: list[Table] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    data: Any = None
    screen: list[Table] | None = None

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


def rich_parts(report: Report, width: int) -> list[Any]:
    """The tables and lines as rich renders them on a terminal of `width` columns."""
    from rich.padding import Padding
    from rich.text import Text

    parts, missing = list[Any](), dict[str, None]()
    for each in report.tables if report.screen is None else report.screen:
        parts += [Text("")] if parts else []
        parts += [Text(each.title, style="bold")] if each.title else []
        shown, left_out = fitting(each, width)
        parts += [_rich_table(shown)] if shown.rows or not each.title else []
        parts += [Text("  none", style="dim")] if not (shown.rows or each.title or each.notes) else []
        missing |= dict.fromkeys(left_out)
        parts += [Padding(Text(note), (0, 0, 0, 2)) for note in each.notes]
    parts += [Text("")] if parts and report.lines else []
    parts += [Text(line) for line in report.lines]
    if missing:
        parts.append(Text(f"columns that do not fit here: {', '.join(missing)}", style="dim"))
    return parts


def fitting(each: Table, width: int) -> tuple[Table, list[str]]:
    """(the table with as many columns as fit into `width`, the columns that are left out)."""
    kept, left_out = list(range(len(each.columns))), list[str]()
    for name in each.spare:
        if _natural_width(each, kept) <= width:
            break
        kept.remove(list(each.columns).index(name))
        left_out.append(name)
    rows: list[Sequence[Any]] = [[row[at] for at in kept] for row in each.rows]
    return Table([each.columns[at] for at in kept], rows, each.title, each.notes), left_out


def _natural_width(each: Table, kept: Sequence[int]) -> int:
    widths = [max([len(each.columns[at]), *(len(_cell(row[at])) for row in each.rows)]) for at in kept]
    return sum(widths) + _GAP * (len(widths) - 1)


def _rich_table(each: Table) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold cyan")
    for i, name in enumerate(each.columns):
        numbers = bool(each.rows) and all(_is_number(row[i]) for row in each.rows)
        shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in each.rows:
        shown.add_row(*(Text(_cell(value)) for value in row))
    return shown


def _show_rich(report: Report, out: TextIO) -> None:
    from rich.console import Console

    console = Console(file=out, highlight=False)
    for part in rich_parts(report, console.width):
        console.print(part)


@contextlib.contextmanager
def redrawing(out: TextIO, *, as_json: bool) -> Iterator[Callable[[Report], None]]:
    """Gives a function that shows a report again and again: in place on a terminal, else one below the other."""
    from rich.console import Group

    live = None if as_json else start_redraw(out)

    def draw(report: Report) -> None:
        if live is not None:
            live.update(Group(*rich_parts(report, live.console.width)), refresh=True)
        else:
            show(report, out, as_json=as_json)
            out.flush()

    try:
        yield draw
    finally:
        if live is not None:
            live.stop()


def start_redraw(out: TextIO) -> Any:
    """A display on `out` that is drawn again in place; None where that is not a terminal that can do so.

    What is higher than the terminal is cut while it is redrawn, and printed whole at the end.
    """
    if not out.isatty():
        return None
    from rich.console import Console
    from rich.live import Live

    console = Console(file=out, highlight=False)
    if console.is_dumb_terminal:
        return None
    live = Live(console=console, auto_refresh=False, vertical_overflow="ellipsis")
    live.start()
    return live


def _columns(report: Report) -> str:
    out = io.StringIO()
    for each in report.tables:
        if each.title:
            out.write(f"{each.title}\n")
        lines = [[f"#{name}" for name in each.columns], *([_cell(value) for value in row] for row in each.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(each.columns))]
        for line in lines:
            out.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")
        out.writelines(f"  {note}\n" for note in each.notes)
    for line in report.lines:
        out.write(line + "\n")
    return out.getvalue()


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
