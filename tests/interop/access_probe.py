"""A Java client with accounts, for many tasks in one JVM, and the protected brokers that it asks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer


@dataclass
class Side:
    """A protected broker under its own name server."""

    names: NameServer
    broker: Broker


class Probe:
    """AccessProbe.java with one version of the client; `before` begins its command line, e.g. with a namespace."""

    def __init__(self, version: str, home: Path, before: Sequence[str] = ()) -> None:
        home.mkdir()
        command = [*before, *JavaRocketmq(version).client_command("AccessProbe", home=home)]
        self._errors = (home / "errors.txt").open("w")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, side: Side, account: tuple[str, str], *words: str) -> str:
        """What a task gives: a status, what mqadmin printed, or the message of an error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        filled = [word.replace("{broker}", side.broker.address) for word in words]
        self._process.stdin.write("\t".join([side.names.address, *account, *filled]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"saw"'):
                return json.loads(line)["saw"]
        raise AssertionError(f"the JVM ended\n{Path(self._errors.name).read_text()[-2000:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


def steady(text: str, side: Side) -> list[str]:
    """Lines without addresses, places in Java's sources, and passwords, which only Java gives away."""
    text = text.replace(side.broker.address, "<broker>").replace(side.names.address, "<names>")
    text = re.sub(r"\b(alicesecret|kingsecret|12345678|null)\b", "<password>", text)
    text = re.sub(r", [\w.$]+\(\w+\.java:\d+\)", "", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not re.match(r"at \S+\(|\.\.\. \d+ more", line)]
    return sorted(kept) if text.lstrip().startswith("#") else kept
