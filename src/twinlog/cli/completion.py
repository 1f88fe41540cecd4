"""`twinlog completion SHELL`: the script that completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")]) -> None:
    """Print the script that completes twinlog's commands and options in a shell.

    bash: put `eval "$(twinlog completion bash)"` into ~/.bashrc.

    zsh: put `eval "$(twinlog completion zsh)"` into ~/.zshrc, after compinit.

    fish: `twinlog completion fish > ~/.config/fish/completions/twinlog.fish`
    """
    typer.echo(get_completion_script(prog_name="twinlog", complete_var="_TWINLOG_COMPLETE", shell=shell.value))
