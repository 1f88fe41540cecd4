"""Groups of commands that are imported only when one of them runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from twinlog.cli.shared.examples import epilog_of


class Lazy(NamedTuple):
    """Where a command is (`module:name` of a function or of a Typer app), and its line in the overview."""

    target: str
    summary: str


class LazyGroup(TyperGroup):
    """Subcommands from a table; the overview is printed from their summaries, without importing them."""

    table: ClassVar[Mapping[str, Lazy]] = {}
    wrap: ClassVar[Callable[[Callable[..., Any]], Callable[..., Any]]] = staticmethod(lambda function: function)
    _listing = False

    # Typer brings its own copy of click or uses click itself, depending on its version: hence Any.
    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        lazy = self.table.get(cmd_name)
        if lazy is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=lazy.summary)
        command = load_command(cmd_name, lazy, type(self).wrap)
        above = str(getattr(ctx, "command_path", "")).split()[1:]  # without the program's name
        _add_examples(command, " ".join([*above, cmd_name]))
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def load_command(
    name: str, lazy: Lazy, wrap: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function
) -> Any:
    """Import a command; a plain function, as `wrap` returns it, becomes an app with that one command."""
    module, _, attribute = lazy.target.partition(":")
    found: typer.Typer | Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(wrap(function))
    command = typer.main.get_command(found)
    command.name = name
    return command


def _add_examples(command: Any, path: str) -> None:
    command.epilog = command.epilog or epilog_of(path)
    for name, child in getattr(command, "commands", {}).items():
        _add_examples(child, f"{path} {name}")
