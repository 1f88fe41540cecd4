"""The screen of `twinlog top`: four tables, redrawn each round; keys stand in the footer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from twinlog.cli.top.grids import TABS, Snapshot, arranged, grid_of, headline, numbers_of
from twinlog.observe.cluster.health import Level

_STYLES = {Level.OK: "", Level.UNKNOWN: "dim", Level.WARNING: "yellow", Level.CRITICAL: "bold red"}
_INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class TopScreen(App[None]):
    """Asks with `ask` every `interval_s` seconds, and shows what it found."""

    TITLE = "twinlog top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    TabbedContent { height: 1fr; }
    #headline { height: 1; background: $boost; padding: 0 1; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "show('brokers')", "Brokers"),
        Binding("r", "show('replicas')", "Replicas"),
        Binding("t", "show('topics')", "Topics"),
        Binding("g", "show('groups')", "Groups"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("v", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "no_filter", "All", show=False),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
        Binding("plus", "pace(-1)", "Faster", key_display="+"),
        Binding("minus", "pace(1)", "Slower", key_display="-"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, ask: Callable[[], Awaitable[Snapshot]], name_servers: str, interval_s: float = 2.0) -> None:
        super().__init__()
        self._ask, self._name_servers = ask, name_servers
        self.interval_s = interval_s
        self.paused = False
        self.wanted = ""
        self.sorting: dict[str, tuple[int | None, bool]] = dict.fromkeys(TABS, (None, False))
        self.found: Snapshot | None = None
        self.rounds = 0
        self._due = 0.0

    def compose(self) -> ComposeResult:
        yield Static("asking ...", id="headline")
        with TabbedContent(initial="brokers"):
            for tab in TABS:
                with TabPane(tab.capitalize(), id=tab), Vertical():
                    yield DataTable(id=f"{tab}-table", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="only rows with this text; Esc shows all", id="filter")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.set_interval(0.1, self._tick)
        self._table(self.tab).focus()

    @property
    def tab(self) -> str:
        return self.query_one(TabbedContent).active

    def _table(self, tab: str) -> DataTable[Text]:
        return self.query_one(f"#{tab}-table", DataTable)

    async def _tick(self) -> None:
        if self.paused or time.monotonic() < self._due:
            return
        self._due = float("inf")  # no second round beside this one
        self.run_worker(self._round(), exclusive=True)

    async def _round(self) -> None:
        self.found = await self._ask()
        self.rounds += 1
        self._due = time.monotonic() + self.interval_s
        self.redraw()

    def redraw(self) -> None:
        """Show the last round again, in the order and with the filter of now."""
        if self.found is None:
            return
        paused = "paused" if self.paused else f"every {self.interval_s:g} s"
        shown = f"{self._name_servers}  {time.strftime('%H:%M:%S')}  {paused}  {headline(self.found)}"
        if self.found.traffic.error:
            shown += f"; {self.found.traffic.error}"
        self.query_one("#headline", Static).update(Text(shown, overflow="ellipsis", no_wrap=True))
        self._fill(self.tab)

    def _fill(self, tab: str) -> None:
        assert self.found is not None
        at, backwards = self.sorting[tab]
        grid = arranged(grid_of(tab, self.found), at, reverse=backwards, wanted=self.wanted)
        table, right = self._table(tab), numbers_of(grid)
        row, scroll = table.cursor_row, table.scroll_offset
        table.clear(columns=True)
        for number, name in enumerate(grid.columns):
            mark = "" if number != at else " v" if backwards else " ^"
            table.add_column(Text(name + mark, justify="right" if right[number] else "left"), key=name)
        for each in grid.rows:
            style = _STYLES[each.level]
            cells = [
                Text(cell.text, style=style, justify="right" if right[number] else "left")
                for number, cell in enumerate(each.cells)
            ]
            table.add_row(*cells)
        table.move_cursor(row=min(row, max(0, len(grid.rows) - 1)), animate=False)
        table.scroll_to(scroll.x, scroll.y, animate=False)

    def action_show(self, tab: str) -> None:
        self.query_one(TabbedContent).active = tab
        self._table(tab).focus()
        self.redraw()

    def on_tabbed_content_tab_activated(self) -> None:
        self.redraw()

    def action_sort(self, step: int) -> None:
        """The next column; after the last one the order is that of names again."""
        if self.found is None:
            return
        at, backwards = self.sorting[self.tab]
        places = [None, *range(len(grid_of(self.tab, self.found).columns))]
        self.sorting[self.tab] = (places[(places.index(at) + step) % len(places)], backwards)
        self.redraw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        at, backwards = self.sorting[self.tab]
        self.sorting[self.tab] = (event.column_index, not backwards if at == event.column_index else backwards)
        self.redraw()

    def action_reverse(self) -> None:
        at, backwards = self.sorting[self.tab]
        self.sorting[self.tab] = (at, not backwards)
        self.redraw()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_no_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = self.wanted = ""
        field.remove_class("shown")
        self._table(self.tab).focus()
        self.redraw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.wanted = event.value
        self.redraw()

    def on_input_submitted(self) -> None:
        self._table(self.tab).focus()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.redraw()

    def action_pace(self, step: int) -> None:
        nearest = min(range(len(_INTERVALS_S)), key=lambda at: abs(_INTERVALS_S[at] - self.interval_s))
        self.interval_s = _INTERVALS_S[min(max(nearest + step, 0), len(_INTERVALS_S) - 1)]
        self._due = min(self._due, time.monotonic() + self.interval_s)
        self.redraw()
