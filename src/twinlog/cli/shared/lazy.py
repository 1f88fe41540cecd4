"""Groups of commands that are imported only when one of them runs."""

from __future__ import annotations

import importlib
import inspect
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
        _complete_help(command, " ".join([*above, cmd_name]), ctx)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.table:
            ctx.fail(f"there is no command {args[0]!r}{self.nearest(args[0])}")
        return super().resolve_command(ctx, args)

    def nearest(self, name: str) -> str:
        """What may have been meant, as the end of a sentence."""
        from twinlog.cli.shared.explain import did_you_mean  # imports a client

        return did_you_mean(name, self.table)

    def get_params(self, ctx: Any) -> list[Any]:
        return [_without_value(one) for one in super().get_params(ctx)]

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


def _complete_help(command: Any, path: str, ctx: Any) -> None:
    """Add its examples; fill its paragraphs to the width of the terminal; flags are shown without a value."""
    command.epilog = command.epilog or epilog_of(path)
    command.help = _filled(command.help or "")
    for parameter in command.params if ctx is None else command.get_params(ctx):  # get_params adds --help
        _without_value(parameter)
    for name, child in getattr(command, "commands", {}).items():
        _complete_help(child, f"{path} {name}", ctx)


def _filled(text: str) -> str:
    """Typer keeps the line ends of a docstring, which are those of our source."""
    return "\n\n".join(part.replace("\n", " ") for part in inspect.cleandoc(text).split("\n\n"))


def _without_value(parameter: Any) -> Any:
    """Typer writes `--json <bool>`, as if the option took a value."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter
