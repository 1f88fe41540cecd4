"""Standard input, output and error, when they are not as a program expects them."""

from __future__ import annotations

import os
import sys


def open_missing() -> None:
    """Give closed standard streams a file to the void: a segment or socket must never become number 1 or 2."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    # These live as long as the process does.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def leave_pipe() -> None:
    """The reader of standard output has gone: write nowhere from now on, so that exiting does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
