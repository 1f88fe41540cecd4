"""`twinlog replication status --watch`: the state again and again, with the progress of replicas that catch up."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from twinlog.cli.replication.report import CatchUp, Progress, report_of
from twinlog.cli.shared.connecting import EXPECTED_FAILURES
from twinlog.cli.shared.report import Report, plain, rich_parts, start_redraw
from twinlog.client import Admin
from twinlog.observe.cluster.broker_groups import Group, gather_groups


async def watch_groups(
    admin: Admin,
    cluster: str | None,
    broker: str | None,
    interval: float,
    as_json: bool,
    *,
    with_metadata: bool = False,
) -> None:
    """Show the state every `interval` seconds until cancelled; the first failure ends it, later ones are shown."""
    catch_up, live, is_first = CatchUp(), None if as_json else start_redraw(sys.stdout), True
    try:
        while True:
            began = time.monotonic()
            try:
                groups = await gather_groups(admin, cluster, broker)
            except EXPECTED_FAILURES as error:
                if is_first:
                    raise
                _print_failure(str(error), live, as_json)
            else:
                progress = catch_up.measure(groups, began)
                _print_groups(groups, progress, live, as_json, with_metadata=with_metadata)
            is_first = False
            await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))
    finally:
        if live is not None:
            live.stop()


def watch_lines(groups: list[Group], progress: list[Progress]) -> list[str]:
    """One line per replica, for an output that is not a terminal."""
    catching_up = {one.name: one for one in progress}
    lines = []
    for group in groups:
        for replica in group.replicas:
            name, lag = f"{group.name}/{replica.broker_id}", group.lags.get(replica.broker_id)
            following = replica.document.get("following", {})
            state, reason = following.get("state", replica.kind), following.get("reason") or replica.error
            if reason:
                state += f" ({reason})"
            behind = "lag unknown"
            if lag is not None and lag.bytes is not None:
                seconds = "?" if lag.ms is None else f"{lag.ms / 1000:.1f}"
                messages = "?" if lag.messages is None else f"{'' if lag.messages_exact else '~'}{lag.messages}"
                behind = f"lag {lag.bytes} bytes, {messages} messages, {seconds} s"
                behind += ", in sync" if lag.in_sync else ", not in sync"
            rest = f"; catching up: {catching_up[name]}" if name in catching_up else ""
            lines.append(f"{_time_of_day()} {name} {state}, {behind}{rest}")
    return lines or [f"{_time_of_day()} no replicas"]


def _print_groups(
    groups: list[Group], progress: list[Progress], live: Any, as_json: bool, *, with_metadata: bool
) -> None:
    report = report_of(groups, with_metadata=with_metadata)
    if as_json:
        print(json.dumps(plain(report.as_data()), ensure_ascii=False), flush=True)
    elif live is not None:
        live.update(_picture(report, progress, live.console.width), refresh=True)
    else:
        print("\n".join(watch_lines(groups, progress)), flush=True)


def _print_failure(reason: str, live: Any, as_json: bool) -> None:
    line = f"{_time_of_day()} {reason}; trying again"
    if as_json:
        print(json.dumps({"error": reason}, ensure_ascii=False), flush=True)
    elif live is not None:
        from rich.text import Text

        live.update(Text(line), refresh=True)
    else:
        print(line, flush=True)


def _picture(report: Report, progress: list[Progress], width: int) -> Any:
    from rich.console import Group as Stack
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 1))
    bar_width = max(10, min(40, width - 65))
    for one in progress:
        grid.add_row(Text(one.name), ProgressBar(one.total, one.done, width=bar_width), Text(str(one)))
    ending = Text(f"{_time_of_day()}  Ctrl-C ends this", style="dim")
    return Stack(*rich_parts(report, width), grid, ending)


def _time_of_day() -> str:
    return time.strftime("%H:%M:%S")
