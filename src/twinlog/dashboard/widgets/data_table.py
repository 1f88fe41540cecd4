"""A table with search, order and pages, for lists that are long or have controls in their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui


@dataclass(frozen=True, slots=True)
class Column:
    """`field` names the value in a row. `sort_field` is another value to order by, such as the number of bytes."""

    name: str
    label: str
    is_number: bool = False
    sort_field: str | None = None
    link_field: str | None = None  # the row's value of this name is the link's target


class DataTable:
    """Rows are dictionaries with an `id`; `show` replaces them, and keeps page, order and focus."""

    def __init__(
        self, columns: Sequence[Column], *, label: str, rows_per_page: int = 20, empty: str = "nothing to show"
    ) -> None:
        with ui.element("div").classes("tl-data"):
            self.search = ui.input(placeholder="Search").props('dense outlined clearable type="search"')
            self.search.props["aria-label"] = f"Search in {label}"
            self.table = ui.table(
                columns=[_quasar(one) for one in columns], rows=[], row_key="id", pagination=rows_per_page
            ).classes("tl-data-table")
        self.table.props('flat rows-per-page-label="Rows on a page"')
        self.table.props["no-data-label"], self.table.props["aria-label"] = empty, label
        self.table.bind_filter_from(self.search, "value")
        for one in columns:
            if one.link_field is not None:
                self.table.add_slot(
                    f"body-cell-{one.name}",
                    f'<q-td :props="props"><a :href="props.row.{one.link_field}">{{{{ props.value }}}}</a></q-td>',
                )

    def show(self, rows: list[dict[str, Any]]) -> None:
        if rows != self.table.rows:
            self.table.rows = rows


def _quasar(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": column.name,
        "label": column.label,
        "field": column.name,
        "align": "right" if column.is_number else "left",
        "sortable": True,
    }
    if column.sort_field is not None:
        found[":sort"] = f"(a, b, one, other) => one.{column.sort_field} - other.{column.sort_field}"
    return found
