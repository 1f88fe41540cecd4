"""Runs `twinlog` in a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?[0-9]+[hl]|\r")


@dataclass(frozen=True, slots=True)
class Shown:
    """What was on the terminal: `raw` with all control codes, `lines` without styles; and the exit status."""

    raw: str
    status: int

    @property
    def lines(self) -> list[str]:
        return _STYLES.sub("", self.raw).splitlines()


def in_terminal(
    words: Sequence[object],
    *,
    columns: int = 80,
    rows: int = 24,
    stop_when: Callable[[str], bool] | None = None,
    stop_key: str = "",
) -> Shown:
    """Run `twinlog WORDS` until it ends, or interrupt it as soon as `stop_when` holds for what it has printed.

    It is interrupted by `stop_key`, or by the signal that Ctrl-C sends.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"}
    environment = {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "twinlog.cli.main", *map(str, words)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    found, deadline = b"", time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the last writer has gone
                break
            found += chunk
            if stop_when is not None and stop_when(found.decode("utf-8", "replace")):
                stop_when = None
                if stop_key:
                    os.write(ours, stop_key.encode())
                else:
                    process.send_signal(signal.SIGINT)
        return Shown(found.decode("utf-8", "replace"), process.wait(10))
    finally:
        process.kill()
        os.close(ours)
