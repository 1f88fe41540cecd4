"""Options of a source or cluster as words of a command line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

from twinlog.cli.running import fail

SourceOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help='An option of format("rocketmq"); may be given often.'),
]
Credential = Annotated[str | None, typer.Option(help="Or ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.")]


def parse_source_options(given: Iterable[str] | None, access_key: str | None, secret_key: str | None) -> dict[str, str]:
    """The options to hand on; keys come from the environment when the command line has none."""
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--option {text!r} is not KEY=VALUE, for example readFrom=slave")
        found[key.strip()] = value.strip()
    access, secret = (
        access_key or os.environ.get("ROCKETMQ_ACCESS_KEY"),
        secret_key or os.environ.get("ROCKETMQ_SECRET_KEY"),
    )
    named = {"accessKey": access, "secretKey": secret}
    return {**{name: value for name, value in named.items() if value}, **found}


def words(texts: Iterable[str] | None) -> tuple[str, ...]:
    """The names in options that may be given often, or once with commas."""
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())
