"""`twinlog failover`: list, history, switchover, failover, pause, resume, reinit."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.failover.reinit import check_reinit, set_store_aside, stored_member
from twinlog.cli.failover.report import group_data, history_report, list_report
from twinlog.cli.failover.wishes import Wish, carry_out, plan_failover, plan_switchover
from twinlog.cli.shared.connecting import run_client, typer_option, with_options
from twinlog.cli.shared.report import Report, show, text_report
from twinlog.client import ClientError
from twinlog.failover.etcd import EtcdError, EtcdUnavailable
from twinlog.failover.records import PAUSE, Pause, RecordBroken, encode_record
from twinlog.failover.transactions import Delete, Transaction
from twinlog.observe.replicas.failover_groups import (
    EtcdAccess,
    FailoverRefused,
    Found,
    Place,
    find_group,
    find_groups,
    place_of,
)
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError
from twinlog.telemetry.log import setup_logging

failover = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Show and control automatic failover: who is master, and who next."
)

Name = Annotated[str | None, typer.Argument(metavar="[BROKER_NAME]", help="The group; needed if there are several.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="A broker.conf of the group: names etcd, its user, its CA."),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="HOST:PORT", help="Who becomes master: its address or brokerId.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]
Work = Callable[[Place], Awaitable[Report]]
DEFAULT_ETCD = "127.0.0.1:2379"
_ETCD_OPTIONS = (
    typer_option(
        "--etcd",
        "-e",
        metavar="HOST:PORT,...",
        envvar="FAILOVER_ETCD",
        help="Endpoints of etcd.",
        kind=str,
        default=DEFAULT_ETCD,
    ),
    typer_option("--tls-ca", metavar="FILE", help="Connect with TLS; certificates that vouch for etcd, PEM."),
    typer_option("--etcd-user", envvar="FAILOVER_ETCD_USER", help="User of etcd."),
    typer_option("--etcd-password", envvar="FAILOVER_ETCD_PASSWORD", help="Its password."),
)


def with_etcd(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for etcd; the function gets them as one argument, `etcd`."""

    def access(etcd: str, tls_ca: str | None, etcd_user: str | None, etcd_password: str | None) -> EtcdAccess:
        return EtcdAccess(etcd, tls_ca, etcd_user, etcd_password)

    return with_options(function, "etcd", _ETCD_OPTIONS, access)


@failover.command("list")
@with_etcd
def list_groups(etcd: EtcdAccess, name: Name = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show the groups with automatic failover: master, epoch, members, who is in sync."""

    async def run(place: Place) -> Report:
        return list_report(await find_groups(place))

    _run("list", config, etcd, name, as_json, run)


@failover.command()
@with_etcd
def history(etcd: EtcdAccess, name: Name = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show every master that a group has had: since when, why, and what was lost."""

    async def run(place: Place) -> Report:
        return history_report(await find_group(place))

    _run("history", config, etcd, name, as_json, run)


@failover.command()
@with_etcd
def switchover(
    etcd: EtcdAccess,
    name: Name = None,
    to: To = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a replica that is in sync take over from the master, without loss; refused otherwise."""

    async def run(place: Place) -> Report:
        found = await find_group(place)
        return await _switch(found, plan_switchover(found, to, _me(), wall_clock_ms()))

    _run("switchover", config, etcd, name, as_json, run)


@failover.command("failover")
@with_etcd
def force_failover(
    etcd: EtcdAccess,
    name: Name = None,
    to: To = None,
    force: Annotated[bool, typer.Option("--force", help="Also a member that lacks messages: they are lost.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a member master although the present one is lost or does not help; says which range is lost."""

    async def run(place: Place) -> Report:
        found = await find_group(place)
        return await _switch(found, plan_failover(found, to, _me(), wall_clock_ms(), force=force))

    _run("failover", config, etcd, name, as_json, run)


@failover.command()
@with_etcd
def pause(
    etcd: EtcdAccess,
    name: Name = None,
    why: Annotated[str, typer.Option("--why", help="For those who wonder later.")] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let nobody be promoted or demoted automatically; a master that loses etcd still stops."""

    async def run(place: Place) -> Report:
        found = await find_group(place)
        await found.group.put(PAUSE, encode_record(Pause(by=_me(), at_ms=wall_clock_ms(), why=why)))
        return await _done(place, f"{found.name} is paused; end it with: twinlog failover resume {found.name}")

    _run("pause", config, etcd, name, as_json, run)


@failover.command()
@with_etcd
def resume(etcd: EtcdAccess, name: Name = None, config: Config = None, as_json: AsJson = False) -> None:
    """End a pause."""

    async def run(place: Place) -> Report:
        found = await find_group(place)
        if found.keys.pause is None:
            return await _done(place, f"{found.name} is not paused")
        await found.group.transact(Transaction((), (Delete(PAUSE),)))
        return await _done(place, f"{found.name} is not paused any more")

    _run("resume", config, etcd, name, as_json, run)


@failover.command()
def reinit(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The broker.conf of the replica.")],
    force: Annotated[bool, typer.Option("--force", help="Although the store is in sync.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a stopped replica with a broken store start over: it copies everything from the master.

    Its files are moved into set-aside/ of the store; nothing is deleted.
    """

    async def run(place: Place) -> Report:
        settings = load_broker_conf(config).store
        found = await find_group(place)
        member = stored_member(Path(settings.root_dir))
        check_reinit(found.keys, member, force=force)
        _confirm(yes, settings.root_dir)
        kept = set_store_aside(settings)
        lines = (f"the store is kept in {kept}", f"start the broker: it copies the log of {found.name} from the master")
        return text_report(*lines, data={"brokerName": found.name, "member": member, "keptIn": str(kept)})

    _run("reinit", config, None, None, as_json, run)


async def _switch(found: Found, wish: Wish) -> Report:
    if wish.lost is not None:
        print(f"lost: bytes {wish.lost[0]} to {wish.lost[1]} of the log", file=sys.stderr, flush=True)
    keys = await carry_out(found, wish)
    assert keys.leader is not None
    lost = keys.last.lost if keys.last is not None else wish.lost
    may_lose = keys.last.may_lose if keys.last is not None else lost is not None
    lines = [f"{keys.leader.address} is the master of {found.name} now, epoch {keys.epoch}", *_loss(lost, may_lose)]
    names = {"brokerName": found.name, "master": keys.leader.address, "epoch": keys.epoch}
    return text_report(*lines, data={**names, "lost": lost, "mayLose": may_lose})


def _loss(lost: tuple[int, int] | None, may_lose: bool) -> list[str]:
    exact = "`twinlog failover history` has the exact range when the old master is back"
    if lost is not None:
        return [f"bytes {lost[0]} to {lost[1]} of the old master's log are lost, at least", exact]
    return [f"how much is lost is not known: {exact}"] if may_lose else ["nothing is lost"]


async def _done(place: Place, line: str) -> Report:
    return text_report(line, data=group_data(await find_group(place)))


def _confirm(yes: bool, root: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise FailoverRefused("nothing was changed: the input is not a terminal, so confirm with --yes")
    if not typer.confirm(f"Set the whole store in {root} aside?"):
        raise FailoverRefused("nothing was changed")


def _me() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return socket.gethostname()


def _run(name: str, config: Path | None, etcd: EtcdAccess | None, group: str | None, as_json: bool, work: Work) -> None:
    setup_logging("error")

    async def run() -> None:
        try:
            show(await work(place_of(config, etcd, group)), sys.stdout, as_json=as_json)
        except EtcdUnavailable as error:
            hint = (
                "name it with --etcd HOST:PORT, or with -c and a broker.conf" if config is None else "see failoverEtcd"
            )
            raise ClientError(f"{error} ({hint})") from error
        except (EtcdError, RecordBroken, SettingsError, StoreError) as error:
            raise ClientError(str(error)) from error

    raise typer.Exit(run_client(f"failover {name}", run()))
