"""What the parts of the demo share: how a step looks, and the servers it starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

TWINLOG = [sys.executable, "-m", "twinlog.cli.main"]
console = Console(highlight=False, width=100)


def step(number: int, title: str, command: str = "") -> None:
    console.print()
    console.print(Text(f" {number} ", "bold white on blue"), Text(title, "bold"))
    if command:
        console.print(Text(f"   $ {command}", "dim"))


class Server:
    """A twinlog process that can be stopped, killed and started again on the same files."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._log, self._words = folder / f"{name}.log", words
        self._process: subprocess.Popen[str] | None = None
        self.address = ""
        self.start()

    def start(self) -> None:
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [*TWINLOG, *self._words], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self._log.parent
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        found = re.search(r"([\d.]+):(\d+)", line)
        if found is None:
            raise SystemExit(f"twinlog {self._words[0]} did not start:\n{self._log.read_text()}")
        self.address = f"127.0.0.1:{found[2]}"
        console.print(f"   {line}")

    def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def broker_file(folder: Path, name: str, names: str, *lines: str) -> str:
    (folder / f"{name}.conf").write_text(
        f"brokerName=broker-a\nnamesrvAddr={names}\nbrokerIP1=127.0.0.1\nstorePathRootDir={folder / name}\n"
        f"listenPort={free_port()}\nmappedFileSizeCommitLog={16 << 20}\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n"
        + "".join(f"{line}\n" for line in lines)
    )
    return f"{name}.conf"


def free_port() -> int:
    from twinlog.broker.ports import free_port

    return free_port()


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> float:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def shell(*words: str, live: bool = False) -> str:
    """Run a twinlog command and show what it prints; `live` leaves it the terminal for its progress."""
    console.print(Text(f"   $ twinlog {' '.join(words)}", "dim"))
    errors = None if live else subprocess.STDOUT
    done = subprocess.run([*TWINLOG, *words], stdout=subprocess.PIPE, stderr=errors, text=True)
    for line in done.stdout.splitlines():
        console.print(Text(f"   {line}"), no_wrap=True, overflow="ellipsis")
    if done.returncode:
        raise SystemExit(f"twinlog {words[0]} ended with status {done.returncode}")
    return done.stdout
