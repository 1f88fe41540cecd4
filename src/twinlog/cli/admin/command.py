"""How an admin command is declared: its name, its options, and the coroutine that does it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twinlog.cli.shared.report import Report
from twinlog.client import Admin, BadArgument
from twinlog.wire.bodies import Body, convert_body
from twinlog.wire.java_json.budget import FILE
from twinlog.wire.java_json.fastjson import loads

Run = Callable[[Admin, Namespace], Awaitable[Report]]
B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Flags take no value; of the `only_one` options of a command exactly one must be given."""

    short: str
    long: str
    help: str
    required: bool = False
    flag: bool = False
    only_one: bool = False
    default: Any = None
    kind: Callable[[str], Any] = str
    unused: bool = False  # an option of mqadmin that has no effect here: accepted with a warning


@dataclass(frozen=True, slots=True)
class AdminCommand:
    name: str
    summary: str
    options: tuple[Option, ...]
    run: Run
    subject: str  # the module it is in, and its heading in the overview


COMMANDS: dict[str, AdminCommand] = {}


def command(name: str, summary: str, *options: Option) -> Callable[[Run], Run]:
    """Declare the decorated coroutine as `twinlog admin NAME`."""

    def declare(run: Run) -> Run:
        subject = run.__module__.rpartition(".")[2]
        COMMANDS[name] = AdminCommand(name, summary, options, run, subject)
        return run

    return declare


def opt(short: str, long: str, help: str, **details: Any) -> Option:
    return Option(short, long, help, **details)


def need(short: str, long: str, help: str, **details: Any) -> Option:
    """An option that must be given."""
    return Option(short, long, help, required=True, **details)


def unused(short: str, long: str, help: str) -> Option:
    """An option of mqadmin that scripts may give and that has no effect here."""
    return Option(short, long, f"{help} (not used here)", unused=True)


def flag(short: str, long: str, help: str) -> Option:
    return Option(short, long, help, flag=True, default=False)


def broker_or_cluster(
    broker: str = "brokerAddr", cluster: str = "clusterName", *, required: bool = True
) -> tuple[Option, Option]:
    """`-b ADDRESS` or `-c CLUSTER`, which most broker commands take."""
    return (
        Option("b", broker, "one broker, host:port", only_one=required),
        Option("c", cluster, "all masters of this cluster", only_one=required),
    )


async def masters(admin: Admin, args: Namespace) -> list[str]:
    """The brokers that -b or -c names."""
    address = _given(args, "brokerAddr", "broker")
    if address:
        return [address]
    cluster = _given(args, "clusterName", "cluster")
    if not cluster:
        raise BadArgument("name a broker with -b host:port or a cluster with -c")
    return await admin.masters(cluster)


def config_list(path: Path, kind: type[B], what: str) -> list[B]:
    """The configurations that a JSON file lists."""
    found = loads(path.read_bytes(), FILE)
    if not isinstance(found, list):
        raise BadArgument(f"{path} holds a JSON {type(found).__name__}, not a list of {what} configurations")
    return [convert_body(kind, value) for value in found]


def _given(args: Namespace, *names: str) -> str | None:
    return next((getattr(args, name) for name in names if getattr(args, name, None)), None)
