"""Options that every command with a Spark session has: `--ui` and `--verbose`.

They concern the session and not the job, so the group adds them to its commands, and `running` reads them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import typer

_OPTIONS = {
    "ui": Annotated[bool, typer.Option("--ui", help="Serve Spark's own pages while the job runs; prints the address.")],
    "verbose": Annotated[
        bool, typer.Option("--verbose", help="Print what Spark logs and, after a failure, the traceback.")
    ],
}


@dataclass(frozen=True, slots=True)
class SessionChoices:
    """What the running command was asked for."""

    ui: bool = False
    verbose: bool = False


_chosen: ContextVar[SessionChoices | None] = ContextVar("session choices", default=None)


def session_choices() -> SessionChoices:
    return _chosen.get() or SessionChoices()


def with_session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with these options, if it starts Spark: those commands name where it runs (`master`)."""
    signature = inspect.signature(command, eval_str=True)
    if "master" not in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*, ui: bool, verbose: bool, **values: Any) -> Any:
        token = _chosen.set(SessionChoices(ui, verbose))
        try:
            return command(**values)
        finally:
            _chosen.reset(token)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    del run.__wrapped__  # type: ignore[attr-defined]  # the signature above is the one that counts
    return run
