"""For MkDocs: the page of commands is made from their help, and links that leave docs/ become plain text.

The site has only the folder docs/. The help of all commands is long and changes with them, so no file has it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_COMMANDS_PAGE = "commands.md"
_PLAIN = {"TYPER_USE_RICH": "0", "COLUMNS": "100", "NO_COLOR": "1"}


def on_page_markdown(markdown: str, **_: object) -> str:
    """`[notebook](../examples/archive.ipynb)` is shown as: notebook (`examples/archive.ipynb`)."""
    return _OUTSIDE.sub(lambda link: link[1] if link[2] in link[1] else f"{link[1]} (`{link[2]}`)", markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of commands."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, _COMMANDS_PAGE, content=commands_page()))
    return files


def commands_page() -> str:
    """The help of every command, as `twinlog ... --help` prints it."""
    parts = ["# Commands\n"]
    for name in command_names():
        mark = "##" if name.count(" ") == 1 else "###"
        parts.append(f"{mark} `{name}`\n\n```text\n{help_of(name).strip()}\n```\n")
    return "\n".join(parts)


def command_names() -> Iterator[str]:
    """`twinlog broker`, `twinlog admin topicList`, and so on."""
    os.environ.update(_PLAIN)  # Typer looks once, when it is imported
    from twinlog.cli.admin.app import load_commands
    from twinlog.cli.admin.command import COMMANDS as ADMIN
    from twinlog.cli.main import COMMANDS
    from twinlog.cli.shared.lazy import load_command

    load_commands()
    for name, lazy in COMMANDS.items():
        yield f"twinlog {name}"
        command = load_command(name, lazy)
        listed = ADMIN if name == "admin" else command.list_commands(None) if hasattr(command, "list_commands") else ()
        yield from (f"twinlog {name} {each}" for each in listed)


def help_of(name: str) -> str:
    from twinlog.cli.main import app

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        app([*name.split()[1:], "--help"], prog_name="twinlog")
    return text.getvalue()
