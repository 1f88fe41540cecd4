"""twinlog tls: a private authority and certificates for a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from twinlog.cli.shared.running import fail

tls = typer.Typer(no_args_is_help=True, help="Make the certificates of a cluster.")


@tls.callback()
def _group() -> None: ...


@tls.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the files are written; it is made if it is missing.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="A name or address of the servers; repeat it for all of them."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long server and client certificates are valid.")] = 825,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make new certificates with the authority that is there.")
    ] = False,
) -> None:
    """Make an authority (ca), and certificates for servers and clients that it signs.

    The authority is kept if it is there. A running server reads changed certificates at its next handshake.
    """
    from twinlog.net.certificates import Pair, issue, make_authority

    hosts = host or ["localhost", "127.0.0.1"]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    taken = [name for name in ("server", "client") if (directory / f"{name}.pem").exists()]
    if taken and not renew:
        fail(f"{directory}/{taken[0]}.pem exists; --renew makes new certificates with the same authority")
    try:
        if (directory / "ca.pem").exists():
            authority = Pair((directory / "ca.pem").read_text(), (directory / "ca.key").read_text())
        else:
            authority = make_authority()
            _write(directory, "ca", authority)
        _write(directory, "server", issue(authority, hosts[0], hosts, days))
        _write(directory, "client", issue(authority, "twinlog client", (), days))
    except (OSError, ValueError) as error:
        fail(f"{directory}: {error}; remove its files to begin anew")
    at = directory.resolve()
    typer.echo(f"""certificates for {", ".join(hosts)}, valid for {days} days, are in {at}

# broker.conf and namesrv.conf
tls.server.mode=enforcing
tls.server.certPath={at}/server.pem
tls.server.keyPath={at}/server.key
tls.enable=true
tls.client.authServer=true
tls.client.trustCertPath={at}/ca.pem

# commands
twinlog admin clusterList --tls-ca {at}/ca.pem

Keep ca.key apart from the servers: whoever has it can make certificates that they trust.""")


def _write(directory: Path, name: str, pair: tuple[str, str]) -> None:
    """The key first, readable for its owner only."""
    for suffix, text, mode in (("key", pair[1], 0o600), ("pem", pair[0], 0o644)):
        new = directory / f".{name}.{suffix}.new"
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
        new.replace(directory / f"{name}.{suffix}")
