"""The `twinlog` command. Each subcommand lives in a module of its own, imported only when it is the one that runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Lazy(NamedTuple):
    """Where a command is (`module:name` of a function or of a Typer app), and what the overview says about it."""

    target: str
    summary: str


COMMANDS: dict[str, Lazy] = {
    "namesrv": Lazy("twinlog.cli.namesrv:namesrv", "Run a name server."),
    "broker": Lazy("twinlog.cli.broker:broker", "Run a broker."),
    "dev": Lazy("twinlog.cli.dev:dev", "Run a name server and a broker together, for development."),
    "cluster": Lazy("twinlog.cli.cluster:cluster", "Run the name server and brokers of a folder of conf/."),
    "admin": Lazy("twinlog.cli.admin.app:admin_app", "Administer a cluster, with mqadmin's commands and flags."),
    "send": Lazy("twinlog.cli.send:send_app", "Send lines of standard input as messages."),
    "consume": Lazy("twinlog.cli.consume:consume_app", "Print messages as lines."),
    "replication": Lazy("twinlog.cli.replication:replication", "See and steer replicas: status, rejoin, change-role."),
    "store": Lazy("twinlog.cli.store:store", "Look into store directories: dump, verify, compare."),
}


class LazyGroup(TyperGroup):
    """Subcommands from the table; the overview is printed from their summaries, without importing them."""

    _listing = False

    # Typer brings its own copy of click or uses click itself, depending on its version: hence Any.
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=lazy.summary)
        return load_command(cmd_name, lazy)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def load_command(name: str, lazy: Lazy) -> Any:
    """Import a command; a plain function becomes an app with that one command."""
    module, _, attribute = lazy.target.partition(":")
    found: typer.Typer | Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    return command


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from twinlog import __version__

        typer.echo(f"twinlog {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """RocketMQ-compatible name server, broker, replica and tools."""


def main() -> None:
    app()


if __name__ == "__main__":
    main()
