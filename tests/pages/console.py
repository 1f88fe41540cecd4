"""Runs the blocks of a page as a reader would: one shell for all console blocks, in a network of its own.

A console block has commands after `$ ` and what they print. A number in the page stands for any number, `…` for any
text. A command that ends with `&` goes on in the background; the page shows its first lines. A trailing `# comment` is
the page's, not the output's.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

SHELL = "unshare --user --map-root-user --net".split()
LOOPBACK_UP = "import fcntl,socket,struct; s=socket.socket(); fcntl.ioctl(s,0x8914,struct.pack('16sH14x',b'lo',0x41))"
WAIT_S = 90
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str


@dataclass(slots=True)
class Step:
    command: str
    printed: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> list[Block]:
    found = _FENCE.findall(page.read_text())
    return [Block(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found]


def steps_of(text: str) -> list[Step]:
    """The commands of a console block with the lines that they print; a line that ends with a backslash goes on."""
    steps: list[Step] = []
    goes_on = False
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif goes_on:
            steps[-1].command += "\n" + line
        elif steps:
            steps[-1].printed.append(line)
        goes_on = (line.startswith("$ ") or goes_on) and line.endswith("\\")
    return steps


def pattern_of(line: str) -> re.Pattern[str]:
    """What a line of the page allows: other numbers, any text for an ellipsis, and the page's own comment left out."""
    line = re.sub(r"\s{3,}#.*$", "", line).rstrip()
    pieces = re.split(r"(…|[0-9][0-9,.]*(?:T[0-9:.]+Z)?|\s+)", line)
    text = ""
    for piece in pieces:
        if piece == "…":
            text += ".*"
        elif piece.isspace():
            text += r"\s+"
        elif piece[:1].isdigit():
            text += r"[0-9][0-9,.]*(?:T[0-9:.]+Z)?"
        else:
            text += re.escape(piece)
    return re.compile(rf"\s*{text}\s*")


class Reader:
    """Types the commands of a page into a shell below `home`, where the network is its own."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._home = home
        self._count = 0
        self._shell = subprocess.Popen(
            [*SHELL, "bash", "--norc"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.type(f'{sys.executable} -c "{LOOPBACK_UP}"')

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes of its network: some have left the shell's group."""
        network = os.readlink(f"/proc/{self._shell.pid}/ns/net")
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/net") == network:
                    os.kill(int(path.name), signal.SIGKILL)
        self._shell.wait()

    def type(self, command: str) -> tuple[int, str]:
        """(exit status, output) of a command in the foreground."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._count += 1
        mark = f"--- end of {self._count}"
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null\nstatus=$?; echo; echo '{mark}' $status\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(mark):
                return int(line.split()[-1]), "\n".join(lines).rstrip()
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended in {command!r}:\n" + "\n".join(lines))

    def follow(self, step: Step) -> None:
        """Run one step, and compare what it prints with the page."""
        command = re.sub(r"\s{3,}#.*$", "", step.command)
        wanted = [line for line in step.printed if line.strip()]
        if command.rstrip().endswith("&"):
            self._in_background(command.rstrip()[:-1], wanted)
            return
        status, output = self.type(command)
        assert status == 0, f"$ {command}\nexit status {status}\n{output}"
        missing = [line for line in wanted if not any(pattern_of(line).fullmatch(one) for one in output.splitlines())]
        assert not missing, f"$ {command}\nprints\n{output}\nbut the page has\n" + "\n".join(missing)

    def _in_background(self, command: str, wanted: list[str]) -> None:
        self._count += 1
        path = self._home / f"background-{self._count}.txt"
        self.type(f"{command} > {path} 2>&1 &")
        end = time.monotonic() + WAIT_S
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            if all(any(pattern_of(line).fullmatch(one) for one in lines) for line in wanted or ["…ready…"]):
                return
            assert time.monotonic() < end, f"$ {command} &\nprinted\n" + "\n".join(lines)
            time.sleep(0.1)

    def run_python(self, text: str, name: str) -> str:
        """Run a block of Python, in which `await` may stand outside of functions."""
        path = self._home / f"{name}.py"
        path.write_text(text)
        status, output = self.type(f"{sys.executable} {Path(__file__).with_name('top_level.py')} {path}")
        assert status == 0, output
        return output


def tools_of(folder: Path) -> str:
    """A PATH on which `twinlog` and `pytest` are this tree's."""
    folder.mkdir(parents=True)
    for name, module in {"twinlog": "twinlog.cli.main", "pytest": "pytest", "python": ""}.items():
        words = f"-m {module} " if module else ""
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def can_separate_networks() -> bool:
    try:
        return subprocess.run([*SHELL, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
