"""`twinlog replication`: the state of replicas, the role of a broker, and the return of a diverged replica."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from twinlog.cli.connecting import DEFAULT_NAME_SERVER, find_credentials, run_client
from twinlog.cli.replication.facts import gather_groups
from twinlog.cli.replication.rejoin import rejoin
from twinlog.cli.replication.report import report_of
from twinlog.cli.replication.watch import watch_groups
from twinlog.cli.report import show
from twinlog.client import Admin, ClientError, ClientOptions
from twinlog.telemetry.log import setup_logging

replication = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Show and control how replicas follow their masters."
)

NameServers = Annotated[
    str,
    typer.Option("--namesrvAddr", "-n", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers."),
]


@replication.command()
def status(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster.")] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", "-b", metavar="HOST:PORT", help="Only this broker and its group."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two updates.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; with --watch one document per line.")] = False,
) -> None:
    """Show each replica's lag in bytes, messages and seconds, its transfer rate, and its metadata."""

    async def run() -> None:
        async with _admin(name_servers) as admin:
            if watch:
                await watch_groups(admin, cluster, broker, interval, as_json)
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
    """Make a running broker master or replica, without a restart; its configuration file is changed too."""

    async def run() -> None:
        async with _admin(name_servers) as admin:
            steps = await admin.change_role(broker, role, broker_id)
        if steps is None:
            raise ClientError(f"{broker} is not a Twinlog broker; restart a Java broker to change its role")
        for step in steps or ["nothing to do: the broker has this role"]:
            print(step)

    _run("change-role", run())


replication.command()(rejoin)


def _admin(name_servers: str) -> Admin:
    return Admin(name_servers, options=ClientOptions(credentials=find_credentials()))


def _run(name: str, work: Coroutine[Any, Any, None]) -> None:
    setup_logging("error")
    raise typer.Exit(run_client(f"replication {name}", work))
