"""`twinlog diagnose group|replica`: asks the cluster, and says what is wrong and what to do next."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

import typer

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.diagnose.report import exit_status, report_of
from twinlog.cli.shared.connecting import Connection, run_client, with_connection
from twinlog.cli.shared.report import show
from twinlog.client import Admin, BadArgument
from twinlog.observe.findings import Finding
from twinlog.observe.groups.diagnose_group import diagnose_group
from twinlog.observe.groups.group_facts import gather_group_facts
from twinlog.observe.replicas.diagnose_replica import diagnose_replica
from twinlog.observe.replicas.replica_facts import ReplicaFacts, gather_replica_facts

diagnose = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Say why a group gets no messages, or a replica does not follow."
)
AsJson = Annotated[bool, typer.Option("--json", help="The findings as JSON.")]
Found = Mapping[str, Sequence[Finding]]


@diagnose.command("group")
@with_connection
def group_command(
    connection: Connection,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The consumer group.")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="A topic that it should read; may be repeated.")
    ] = None,
    member_access_key: Annotated[
        str | None, typer.Option(help="Account of the members, if it is not yours: what it may is tried.")
    ] = None,
    member_secret_key: Annotated[str | None, typer.Option(help="Its secret key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a consumer group gets no messages.

    Members, subscriptions, filters, topics, permissions, offsets, queues and listeners are looked at. The exit status
    is 1 when there is a problem.
    """
    theirs = connection
    if member_access_key or member_secret_key:
        theirs = dataclasses.replace(connection, access_key=member_access_key, secret_key=member_secret_key)

    async def look(admin: Admin) -> Found:
        async with theirs.admin() as member:
            facts = await gather_group_facts(admin, name, wall_clock_ms(), member, topic or ())
        return {f"group {name}": diagnose_group(facts)}

    _run("group", connection, look, as_json=as_json)


@diagnose.command("replica")
@with_connection
def replica_command(
    connection: Connection,
    broker: Annotated[
        str | None,
        typer.Argument(metavar="[BROKER]", help="A brokerName, or the host:port of a replica; default: all replicas."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a replica does not follow its master.

    Registration, master, log, secret, TLS, HA address, disk, clock, versions and metadata are looked at. The exit
    status is 1 when there is a problem.
    """

    async def look(admin: Admin) -> Found:
        found = await gather_replica_facts(admin, broker)
        if not found:
            raise BadArgument(
                f"no replica {broker} is registered; a host:port asks one that is not"
                if broker
                else "no replica is registered; give the host:port of the replica that should be"
            )
        return {_subject(one): diagnose_replica(one) for one in found}

    _run("replica", connection, look, as_json=as_json)


def _subject(one: ReplicaFacts) -> str:
    return f"replica {one.replica.member.broker_id} of {one.name} at {one.replica.member.address}"


def _run(name: str, connection: Connection, look: Callable[[Admin], Awaitable[Found]], *, as_json: bool) -> None:
    found: dict[str, Sequence[Finding]] = {}

    async def run() -> None:
        async with connection.admin() as admin:
            found.update(await look(admin))
        show(report_of(found), sys.stdout, as_json=as_json)

    raise typer.Exit(run_client(f"diagnose {name}", run(), connection) or exit_status(found))
