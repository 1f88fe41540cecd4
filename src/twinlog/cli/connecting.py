"""What the client commands share: the options for name servers, account and TLS, and their parser."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer

from twinlog.cli.streams import leave_pipe
from twinlog.client import BadArgument, ClientOptions, Credentials, tls_context
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.settings.accounts import TOOLS_FILE, read_tools_file
from twinlog.settings.errors import SettingsError

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
EXPECTED_FAILURES = (*REQUEST_FAILURES, OSError)


def argparse_app(name: str, summary: str, run: Callable[[Sequence[str]], int]) -> typer.Typer:
    """A command that parses its arguments with argparse, since mqadmin's flags are not possible in Typer."""
    app = typer.Typer(add_completion=False)
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}

    def command(context: typer.Context) -> None:
        raise typer.Exit(run(context.args))

    command.__doc__ = summary
    app.command(name, add_help_option=False, context_settings={**settings, "help_option_names": []})(command)
    return app


def run_client(command: str, work: Coroutine[Any, Any, None]) -> int:
    """Run a command's coroutine; its exit status. An expected failure is one line on standard error."""
    try:
        asyncio.run(work)
    except BrokenPipeError:  # the reader has read enough
        leave_pipe()
    except KeyboardInterrupt:
        return 130
    except EXPECTED_FAILURES as error:
        print(f"twinlog {command}: {error}", file=sys.stderr)
        return 1
    return 0


class Parser(argparse.ArgumentParser):
    """An error names the command that explains the options."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; `{self.prog} --help` explains the options", file=sys.stderr)
        raise SystemExit(2)


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-n",
        "--namesrvAddr",
        default=os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER,
        metavar="HOST:PORT;...",
        help="name servers; default: $NAMESRV_ADDR, else %(default)s",
    )
    group.add_argument("--access-key", help="or $ROCKETMQ_ACCESS_KEY, or in $ROCKETMQ_HOME/conf/tools.yml")
    group.add_argument("--secret-key", help="or $ROCKETMQ_SECRET_KEY, or in $ROCKETMQ_HOME/conf/tools.yml")
    group.add_argument("--tls", action="store_true", help="connect with TLS; certificates are checked")
    group.add_argument("--tls-ca", metavar="FILE", help="with TLS; certificates that vouch for servers, PEM")
    group.add_argument("--tls-cert", metavar="FILE", help="with TLS; certificate that is shown to servers, PEM")
    group.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
    group.add_argument("--tls-insecure", action="store_true", help="connect with TLS, certificates are not checked")
    levels = ("debug", "info", "warning", "error")
    group.add_argument("--log-level", default="error", choices=levels, help="what to log on standard error")


def client_options(args: argparse.Namespace) -> ClientOptions:
    credentials = find_credentials(args.access_key, args.secret_key)
    files = {"ca_file": args.tls_ca, "cert_file": args.tls_cert, "key_file": args.tls_key}
    wanted = args.tls or args.tls_insecure or any(files.values())
    tls = tls_context(**files, verify=not args.tls_insecure) if wanted else None
    return ClientOptions(credentials=credentials, tls=tls)


def find_credentials(access_key: str | None = None, secret_key: str | None = None) -> Credentials | None:
    """The account given, else that of the environment, else that of RocketMQ's tools file; None when there is none."""
    access_key = access_key or os.environ.get("ROCKETMQ_ACCESS_KEY")
    secret_key = secret_key or os.environ.get("ROCKETMQ_SECRET_KEY")
    if bool(access_key) != bool(secret_key):
        raise BadArgument(
            "an access key and a secret key go together: give both or none, as options or as ROCKETMQ_ACCESS_KEY and "
            "ROCKETMQ_SECRET_KEY"
        )
    if access_key and secret_key:
        return Credentials(access_key, secret_key)
    home = os.environ.get("ROCKETMQ_HOME")
    path = Path(home, TOOLS_FILE) if home else None
    try:
        account = read_tools_file(path) if path is not None and path.is_file() else None
    except SettingsError as error:
        raise BadArgument(str(error)) from error
    return None if account is None else Credentials(*account)
