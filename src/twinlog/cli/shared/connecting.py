"""What the client commands share: the options for name servers, account and TLS, and their parser."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand

from twinlog.cli.shared.explain import explain
from twinlog.cli.shared.streams import leave_pipe
from twinlog.client import Admin, BadArgument, ClientOptions, Credentials, tls_context
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.settings.accounts import TOOLS_FILE, read_tools_file
from twinlog.settings.errors import SettingsError
from twinlog.telemetry.log import LEVELS, setup_logging

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
EXPECTED_FAILURES = (*REQUEST_FAILURES, OSError)


class Candidate(NamedTuple):
    """A word that a shell may complete."""

    value: str
    help: str = ""
    type: str = "plain"


Complete = Callable[[Sequence[str]], Iterable[Candidate]]


def argparse_app(
    name: str,
    summary: str,
    run: Callable[[Sequence[str]], int],
    parser: Callable[[], argparse.ArgumentParser] | None = None,
    *,
    complete: Complete | None = None,
) -> typer.Typer:
    """A command that parses its arguments with argparse, since mqadmin's flags are not possible in Typer.

    `parser` makes its parser, whose options shells complete; or `complete` returns words for those typed so far.
    """
    app = typer.Typer(add_completion=False)
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
    found = complete or (lambda _: option_candidates(parser()) if parser is not None else ())

    class ArgparseCommand(TyperCommand):
        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            return [one for one in found(ctx.args) if one.value.startswith(incomplete)]

    def command(context: typer.Context) -> None:
        raise typer.Exit(run(context.args))

    command.__doc__ = summary
    context_settings = {**settings, "help_option_names": []}
    app.command(name, cls=ArgparseCommand, add_help_option=False, context_settings=context_settings)(command)
    return app


def option_candidates(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    """All options of a parser."""
    for action in parser._actions:  # argparse has no other way to list them
        for option in action.option_strings:
            yield Candidate(option, (action.help or "").partition("%")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The account and TLS of a command; its fields are the options of ACCESS_OPTIONS."""

    access_key: str | None = None
    secret_key: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_insecure: bool = False

    @property
    def wants_tls(self) -> bool:
        """An option that only TLS uses asks for it."""
        return self.tls or self.tls_insecure or any((self.tls_ca, self.tls_cert, self.tls_key))


class AccessOption(NamedTuple):
    """An option of every command that asks servers, whatever parses it."""

    name: str
    help: str
    metavar: str | None = None
    is_flag: bool = False


ACCESS_OPTIONS = (
    AccessOption("--access-key", "or $ROCKETMQ_ACCESS_KEY, or in $ROCKETMQ_HOME/conf/tools.yml"),
    AccessOption("--secret-key", "or $ROCKETMQ_SECRET_KEY, or in $ROCKETMQ_HOME/conf/tools.yml"),
    AccessOption("--tls", "connect with TLS; certificates are checked", is_flag=True),
    AccessOption("--tls-ca", "with TLS; certificates that vouch for servers, PEM", "FILE"),
    AccessOption("--tls-cert", "with TLS; certificate that is shown to servers, PEM", "FILE"),
    AccessOption("--tls-key", "its private key, PEM", "FILE"),
    AccessOption("--tls-insecure", "connect with TLS, certificates are not checked", is_flag=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Access):
    """How servers are reached: what the connection options of a command say."""

    name_servers: str = DEFAULT_NAME_SERVER
    log_level: str = "error"

    def options(self) -> ClientOptions:
        """BadArgument for keys or files that do not go together."""
        files = {"ca_file": self.tls_ca, "cert_file": self.tls_cert, "key_file": self.tls_key}
        tls = tls_context(**files, verify=not self.tls_insecure) if self.wants_tls else None
        return ClientOptions(credentials=find_credentials(self.access_key, self.secret_key), tls=tls)

    def admin(self) -> Admin:
        return Admin(self.name_servers, options=self.options())


def run_client(command: str, work: Coroutine[Any, Any, None], connection: Connection | None = None) -> int:
    """Run a command's coroutine; its exit status. An expected failure is one line on standard error.

    With `connection`, the servers are asked what a failure may mean: a wrong kind of port, a misspelled topic.
    """
    try:
        asyncio.run(work)
    except BrokenPipeError:  # the reader has read enough
        leave_pipe()
    except KeyboardInterrupt:
        return 130
    except EXPECTED_FAILURES as error:
        print(f"twinlog {command}: {explained(error, connection)}", file=sys.stderr)
        return 1
    return 0


def explained(error: BaseException, connection: Connection | None) -> str:
    """The message of `error`, or a better one."""
    if connection is None:
        return str(error)
    with contextlib.suppress(*EXPECTED_FAILURES, KeyboardInterrupt):
        return asyncio.run(explain(error, connection.name_servers, connection.options())) or str(error)
    return str(error)


class _Lines(argparse.RawDescriptionHelpFormatter):
    """Text of one line is filled to the width; text of several lines, such as examples, keeps them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kind = argparse.HelpFormatter if "\n" not in text else argparse.RawDescriptionHelpFormatter
        return kind._fill_text(self, text, width, indent)


class Parser(argparse.ArgumentParser):
    """An error names the command that explains the options. Lines of examples at the end of a help page stay lines."""

    def __init__(self, *args: Any, **details: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Lines, **details})

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
    for one in ACCESS_OPTIONS:
        details: dict[str, Any] = {"action": "store_true"} if one.is_flag else {"metavar": one.metavar}
        group.add_argument(one.name, help=one.help, **details)
    levels = ("debug", "info", "warning", "error")
    group.add_argument("--log-level", default="error", choices=levels, help="what to log on standard error")


def connection_of(args: argparse.Namespace) -> Connection:
    """What `add_connection_options` has read."""
    names = (*(one.name for one in dataclasses.fields(Access)), "log_level")
    return Connection(name_servers=args.namesrvAddr, **{name: getattr(args, name) for name in names})


def client_options(args: argparse.Namespace) -> ClientOptions:
    return connection_of(args).options()


def typer_option(*names: str, help: str, kind: Any = str | None, default: Any = None, **details: Any) -> Parameter:
    """An option of the connection panel, as a parameter for `with_options`."""
    described = Annotated[kind, typer.Option(*names, help=help, rich_help_panel="Connection", **details)]
    name = "name_servers" if names[0] == "--namesrvAddr" else names[0].lstrip("-").replace("-", "_")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)


_NAME_SERVERS = typer_option(
    "--namesrvAddr",
    "-n",
    metavar="HOST:PORT;...",
    envvar="NAMESRV_ADDR",
    help="Name servers.",
    kind=str,
    default=DEFAULT_NAME_SERVER,
)
_LOG_LEVEL = typer_option(
    "--log-level", metavar="LEVEL", kind=str, default="error", help=f"Log on standard error: {', '.join(LEVELS)}."
)


def _typed(option: AccessOption) -> Parameter:
    text = f"{option.help[0].upper()}{option.help[1:]}."
    if option.is_flag:
        return typer_option(option.name, help=text, kind=bool, default=False)
    return typer_option(option.name, help=text, metavar=option.metavar)


_ACCESS = tuple(map(_typed, ACCESS_OPTIONS))


def with_access(function: Callable[..., None]) -> Callable[..., None]:
    """Give a Typer command the options of account and TLS; the function gets them as one argument, `access`."""
    return with_options(function, "access", _ACCESS, Access)


def with_connection(function: Callable[..., None], *, default: str = DEFAULT_NAME_SERVER) -> Callable[..., None]:
    """Give a Typer command the connection options; the function gets them as one argument, `connection`."""

    def connect(**values: Any) -> Connection:
        connection = Connection(**values)
        if connection.log_level not in LEVELS:
            raise typer.BadParameter(f"{connection.log_level!r} is not one of {', '.join(LEVELS)}")
        setup_logging(connection.log_level)
        return connection

    return with_options(function, "connection", [_NAME_SERVERS.replace(default=default), *_ACCESS, _LOG_LEVEL], connect)


def with_options(
    function: Callable[..., None], name: str, options: Sequence[Parameter], make: Callable[..., Any]
) -> Callable[..., None]:
    """A Typer command in which the parameter `name` is made of several options."""
    signature = inspect.signature(function, eval_str=True)
    own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in signature.parameters.values() if one.name != name]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        made = make(**{one.name: given.pop(one.name) for one in options})
        function(**{name: made}, **given)

    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


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
