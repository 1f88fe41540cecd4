"""Standard input, output and error, when they are closed or their reader has gone."""

from __future__ import annotations

import os
import sys


def open_missing() -> None:
    """Open closed standard streams as /dev/null: a segment or socket must never become number 1 or 2."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    # These stay open until the process ends.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def leave_pipe() -> None:
    """The reader of standard output has gone: write to /dev/null from now on, so that the exit prints no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
