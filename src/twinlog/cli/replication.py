"""`twinlog replication`: how far replicas are, what role a broker has, and how a diverged replica returns."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

from twinlog.cli.admin.report import Report, plain, show
from twinlog.cli.connecting import DEFAULT_NAME_SERVER, Failures
from twinlog.cli.rejoin import rejoin
from twinlog.cli.replication_facts import Group, gather_groups
from twinlog.cli.replication_report import CatchUp, Progress, report_of
from twinlog.cli.streams import leave_pipe
from twinlog.client import Admin, ClientError, ClientOptions, Credentials
from twinlog.telemetry.log import setup_logging

T = TypeVar("T")
replication = typer.Typer(
    add_completion=False, no_args_is_help=True, help="See and steer how replicas follow their masters."
)
replication.command()(rejoin)

NameServers = Annotated[
    str,
    typer.Option("--namesrvAddr", "-n", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers."),
]


@replication.command()
def status(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster.")] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", "-b", metavar="HOST:PORT", help="Only this broker, its master and twins.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; one document a line with --watch.")] = False,
) -> None:
    """Show lag in bytes, messages and seconds, transfer rates, who is in sync, and each kind of metadata."""

    async def run() -> None:
        async with _admin(name_servers) as admin:
            if watch:
                await _watch(admin, cluster, broker, interval, as_json)
            else:
                show(report_of(await gather_groups(admin, cluster, broker)), sys.stdout, as_json=as_json)

    _run("status", run())


@replication.command("change-role")
def change_role(
    broker: Annotated[str, typer.Option("--broker", "-b", metavar="HOST:PORT", help="The broker to change.")],
    role: Annotated[str, typer.Option("--role", help="ASYNC_MASTER, SYNC_MASTER or SLAVE.")],
    broker_id: Annotated[
        int | None, typer.Option("--id", min=1, help="A replica's brokerId; default: its last one, or a free one.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
) -> None:
    """Make a running broker master or replica, without restart; its configuration file follows."""

    async def run() -> None:
        async with _admin(name_servers) as admin:
            steps = await admin.change_role(broker, role, broker_id)
        if steps is None:
            raise ClientError(f"{broker} is no Twinlog broker; a Java broker changes its role by restart only")
        for step in steps or ["nothing to do: it has this role"]:
            print(step)

    _run("change-role", run())


async def _watch(admin: Admin, cluster: str | None, broker: str | None, interval: float, as_json: bool) -> None:
    catch_up, live, looks = CatchUp(), None, 0
    if sys.stdout.isatty() and not as_json:
        from rich.console import Console
        from rich.live import Live

        if not (console := Console()).is_dumb_terminal:
            live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
            live.start()
    try:
        while True:
            began = time.monotonic()
            groups = await _look(admin, cluster, broker, first=not looks)
            looks += 1
            if isinstance(groups, str):
                _tell_failure(groups, live, as_json)
            else:
                progress, report = catch_up.look(groups, began), report_of(groups)
                if as_json:
                    print(json.dumps(plain(report.as_data()), ensure_ascii=False), flush=True)
                elif live is not None:
                    live.update(_picture(report, progress), refresh=True)
                else:
                    print("\n".join(watch_lines(groups, progress)), flush=True)
            await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))
    finally:
        if live is not None:
            live.stop()


async def _look(admin: Admin, cluster: str | None, broker: str | None, *, first: bool) -> list[Group] | str:
    """What there is to see, or why nothing: who watches wants to see servers come back as well."""
    try:
        return await gather_groups(admin, cluster, broker)
    except Failures as error:
        if first:
            raise
        return str(error)


def _tell_failure(reason: str, live: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": reason}, ensure_ascii=False), flush=True)
    elif live is not None:
        from rich.text import Text

        live.update(Text(f"{time.strftime('%H:%M:%S')} {reason}; looking again"), refresh=True)
    else:
        print(f"{time.strftime('%H:%M:%S')} {reason}; looking again", flush=True)


def watch_lines(groups: list[Group], progress: list[Progress]) -> list[str]:
    """One line a replica, for whoever reads this through a pipe."""
    ways = {one.name: one for one in progress}
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
            way = f"; catching up: {ways[name]}" if name in ways else ""
            lines.append(f"{time.strftime('%H:%M:%S')} {name} {state}, {behind}{way}")
    return lines or [f"{time.strftime('%H:%M:%S')} no replicas"]


def _picture(report: Report, progress: list[Progress]) -> Any:
    from rich.console import Group as Stack
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    from twinlog.cli.admin.report import rich_parts

    grid = Grid.grid(padding=(0, 1))
    for one in progress:
        grid.add_row(Text(one.name), ProgressBar(one.total, one.done, width=40), Text(str(one)))
    return Stack(*rich_parts(report), grid)


def _admin(name_servers: str) -> Admin:
    key, secret = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
    credentials = Credentials(key, secret) if key and secret else None
    return Admin(name_servers, options=ClientOptions(credentials=credentials))


def _run(name: str, work: Coroutine[Any, Any, T]) -> T:
    setup_logging("error")
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        leave_pipe()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Failures as error:
        print(f"twinlog replication {name}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
