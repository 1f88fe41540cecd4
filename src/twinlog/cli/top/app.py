"""`twinlog top`: the screen, and the same as tables or JSON for scripts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.shared.connecting import Connection, run_client, with_connection
from twinlog.cli.shared.report import Report, Table, show
from twinlog.cli.top.grids import TABS, Grid, Snapshot, grid_data, grid_of, headline
from twinlog.client import Admin, ClientError
from twinlog.observe.cluster.survey import Survey
from twinlog.observe.traffic import TrafficSurvey

_FIRST_ROUNDS_S = 1.0  # between two rounds, of which rates are made
_SPARE = {
    "brokers": ("Reason", "Uptime", "Out/s"),
    "replicas": ("Reason", "Rate", "Messages"),
    "topics": ("Brokers",),
    "groups": ("Topics",),
}


class Watcher:
    """One round after the other, of brokers and of topics and groups."""

    def __init__(self, admin: Admin) -> None:
        self._brokers, self._traffic = Survey(admin), TrafficSurvey(admin)

    async def round(self) -> Snapshot:
        now_ms = wall_clock_ms()
        view = await self._brokers.round(now_ms)
        masters = [one.address for one in view.brokers if one.is_master and one.kind != "silent"]
        own_names = {name for one in view.groups for name in (one.cluster, one.name)}
        return Snapshot(view, await self._traffic.round(masters, now_ms, own_names))


@with_connection
def top(
    connection: Connection,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the tables once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything once, as JSON.")] = False,
) -> None:
    """Show brokers, replicas, topics and groups, live; the keys stand at the bottom of the screen.

    It works on Java clusters as well, and changes nothing. Without a terminal it prints once, as with --once.
    """
    if once or as_json or not sys.stdout.isatty():
        raise typer.Exit(run_client("top", _print_once(connection, as_json=as_json), connection))
    raise typer.Exit(run_client("top", _show(connection, interval), connection))


async def _print_once(connection: Connection, *, as_json: bool) -> None:
    async with connection.admin() as admin:
        watcher = Watcher(admin)
        found = await watcher.round()
        if found.view.error:
            raise ClientError(found.view.error)
        await asyncio.sleep(_FIRST_ROUNDS_S)
        show(report_of(await watcher.round()), sys.stdout, as_json=as_json)


async def _show(connection: Connection, interval_s: float) -> None:
    try:
        from twinlog.cli.top.screen import TopScreen
    except ModuleNotFoundError as problem:
        raise ClientError(f"{problem}; type: pip install 'twinlog[top]', or use --once") from problem
    async with connection.admin() as admin:
        await admin.cluster_info()  # a wrong address is an error, not an empty screen
        await TopScreen(Watcher(admin).round, connection.name_servers, interval_s).run_async()


def report_of(found: Snapshot) -> Report:
    """All four tables."""
    grids = {tab: grid_of(tab, found) for tab in TABS}
    lines = [headline(found)] + ([found.traffic.error] if found.traffic.error else [])
    data = {tab: grid_data(grid) for tab, grid in grids.items()}
    return Report([_table(tab, grid) for tab, grid in grids.items()], lines, data | {"headline": lines[0]})


def _table(tab: str, grid: Grid) -> Table:
    rows = [[cell.text for cell in row.cells] for row in grid.rows]
    reasons = grid.columns.index("Reason") if "Reason" in grid.columns else None
    notes = [f"{row[0]} {row[1]}: {row[reasons]}" for row in rows if reasons is not None and row[reasons]]
    kept = [at for at in range(len(grid.columns)) if at != reasons]
    shown: list[Sequence[Any]] = [[row[at] for at in kept] for row in rows]
    spare = [name for name in _SPARE[tab] if name != "Reason"]
    return Table([grid.columns[at] for at in kept], shown, tab.capitalize(), notes, spare)
