"""`twinlog replication`: the state of replicas, the role of a broker, and the return of a diverged replica."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from twinlog.cli.replication.rejoin import rejoin
from twinlog.cli.replication.report import report_of
from twinlog.cli.replication.role import change_one
from twinlog.cli.replication.watch import watch_groups
from twinlog.cli.shared.connecting import Connection, run_client, with_connection
from twinlog.cli.shared.report import show, text_report
from twinlog.observe.cluster.broker_groups import gather_groups
from twinlog.observe.replicas.planned_switch import Switched, carry_out, plan_switch

replication = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Show and control how replicas follow their masters."
)

AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


@replication.command()
@with_connection
def status(
    connection: Connection,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster.")] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", "-b", metavar="HOST:PORT", help="Only this broker and its group."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two updates.")] = 1.0,
    metadata: Annotated[
        bool, typer.Option("--metadata", "-m", help="When each kind of metadata was synchronised, and its version.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; with --watch one document per line.")] = False,
) -> None:
    """Show each replica's lag in bytes, messages and seconds, its transfer rate, and its metadata."""

    async def run() -> None:
        async with connection.admin() as admin:
            if watch:
                await watch_groups(admin, cluster, broker, interval, as_json, with_metadata=metadata)
            else:
                groups = await gather_groups(admin, cluster, broker)
                show(report_of(groups, with_metadata=metadata), sys.stdout, as_json=as_json)

    _run("status", run(), connection)


@replication.command("change-role")
@with_connection
def change_role(
    connection: Connection,
    broker: Annotated[str, typer.Option("--broker", "-b", metavar="HOST:PORT", help="The broker to change.")],
    role: Annotated[str, typer.Option("--role", help="ASYNC_MASTER, SYNC_MASTER or SLAVE.")],
    broker_id: Annotated[
        int | None, typer.Option("--id", min=1, help="A replica's brokerId; default: its last one, or a free one.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Step down although no replica is connected: then nobody takes messages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a running broker master or replica, without a restart; its configuration file is changed too."""

    async def run() -> None:
        async with connection.admin() as admin:
            show(await change_one(admin, broker, role, broker_id, force=force), sys.stdout, as_json=as_json)

    _run("change-role", run(), connection)


@replication.command()
@with_connection
def switch(
    connection: Connection,
    group: Annotated[
        str | None, typer.Argument(metavar="[BROKER_NAME]", help="Whose master changes; needed if there are several.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", help="The replica that becomes master; needed if there are several."),
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only in this cluster.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let a replica take over from its master, which becomes a replica: a planned switch, without loss.

    The master refuses sends and gives the replica the rest of its log; the replica becomes master; both logs are
    compared. It is refused while the replica is not near. Sends fail for a second or two, and clients send again.
    """

    async def run() -> None:
        async with connection.admin() as admin:
            plan = plan_switch(await gather_groups(admin, cluster), group, to)
            tell = (lambda line: print(line, file=sys.stderr, flush=True)) if as_json else _print_now
            done = await carry_out(admin, plan, connection.name_servers, tell)
            show(text_report(*done.lines, data=_switch_data(done)), sys.stdout, as_json=as_json)

    _run("switch", run(), connection)


replication.command()(rejoin)


def _switch_data(done: Switched) -> dict[str, Any]:
    return {
        "brokerName": done.name,
        "master": done.master,
        "role": done.role,
        "epoch": done.epoch,
        "replica": done.replica,
        "replicaId": done.replica_id,
        "comparedFrom": done.compared_from,
        "comparedTo": done.compared_to,
        "pausedSeconds": round(done.paused_s, 3),
    }


def _print_now(line: str) -> None:
    print(line, flush=True)


def _run(name: str, work: Coroutine[Any, Any, None], connection: Connection) -> None:
    raise typer.Exit(run_client(f"replication {name}", work, connection))
