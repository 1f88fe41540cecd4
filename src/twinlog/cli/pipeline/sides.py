"""What the comparing commands share: how brokers are reached, and their sides as arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from twinlog.cli.running import fail

if TYPE_CHECKING:
    from twinlog.spark.options import ClusterOptions

NameServer = Annotated[
    str | None,
    typer.Option("--nameServer", "-n", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers."),
]
Tls = Annotated[bool, typer.Option("--tls", help="Connect to brokers with TLS; certificates are checked.")]
TlsInsecure = Annotated[bool, typer.Option("--tls-insecure", help="Connect with TLS to anybody (test certificates).")]


def cluster_options(name_servers: str | None, *, tls: bool = False, tls_insecure: bool = False) -> ClusterOptions:
    """How brokers are reached; the account is that of ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY."""
    from twinlog.client import ClientError, Credentials
    from twinlog.client.routing.name_servers import parse_name_servers
    from twinlog.spark.options import ClusterOptions

    key, secret = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
    if bool(key) != bool(secret):
        fail("ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY go together: set both or none")
    try:
        names = tuple(parse_name_servers(name_servers)) if name_servers else ()
    except ClientError as problem:
        fail(f"--nameServer {name_servers!r}: {problem}")
    return ClusterOptions(
        name_servers=names,
        credentials=Credentials(key, secret) if key and secret else None,
        tls=tls or tls_insecure,
        tls_verify=not tls_insecure,
    )


def check_table(to: str | None) -> None:
    """End the command if no table can be at `to`; what Spark says about it would come after all the work."""
    from twinlog.spark.errors import BadOption
    from twinlog.spark.paths import table_location

    try:
        if to is not None:
            table_location(to, "--to")
    except BadOption as problem:
        fail(problem)


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `10m`, `2h` or `1d` as seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        fail(f"{option} {text!r} is no time: write a number with s, m, h or d behind it, for example 10m")
    return value
