"""`twinlog pipeline ...` in this process, with the real standard streams."""

from typing import NamedTuple

import pytest
import typer

from twinlog.cli.pipeline.app import app


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(capfd: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run one command to its end."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        typer.main.get_command(app).main(args=list(words), prog_name="twinlog pipeline")
    return Done(int(ended.value.code or 0), *capfd.readouterr())
