"""Real mqadmin commands, many in one JVM, and their output with everything that differs from run to run taken out."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import JavaRocketmq

_VOLATILE = [
    (r"\b[0-9A-F]{32}\b", "<id>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<time>"),
    (r"__CRC32#=\d{10}", "__CRC32#=<crc>"),  # covers the times, too
    (r"\b1[6-9]\d{11}\b", "<ms>"),
    (r"127\.0\.0\.1:\d{4,5}", "<client>"),
    (r"\bV\d+_\d+_\d+\b", "<version>"),
    (r"version=\d+", "version=<n>"),
    (r"rt=\d+ms", "rt=<n>ms"),
    (r"\b\d+-\d+\(", "<s>-<n>("),  # how far the timer is behind: a second, on a busy machine
    (r"-?\d+\.\d+(E-?\d+)?", "<n>"),
]


class AdminSession:
    """mqadmin against one cluster, on which a producer and a consumer are at work (see AdminRunner.java)."""

    def __init__(self, rocketmq: JavaRocketmq, cluster: Cluster, home: Path) -> None:
        self._cluster, self._home = cluster, home
        addresses = (cluster.names.address, cluster.broker.address)
        command = rocketmq.client_command("AdminRunner", *addresses, home=home)
        self._errors = (home / "errors.txt").open("w")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.stage = self._answer("the set-up of topics, messages and clients")
        self.places = {
            "broker": cluster.broker.address,
            "home": str(home),
            "id": self.stage["ids"][3],
            "offset_id": self.stage["offsetIds"][3],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def run(self, words: list[str]) -> str:
        """What the command prints; `{broker}`, `{id}` and the like in its words are filled in."""
        filled = [word.format_map(self.places) for word in words]
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join([*filled, "-n", self._cluster.names.address]) + "\n")
        self._process.stdin.flush()
        return self._answer(" ".join(filled))["output"]

    def steady(self, output: str) -> list[str]:
        """The lines of an output without addresses, times, ids, versions, rates and column widths."""
        output = output.replace(self._cluster.broker.address, "<broker>")
        output = output.replace(self._cluster.names.address, "<names>").replace(str(self._home), "<home>")
        output = output.replace(str(self._cluster.broker.home), "<server>")
        for pattern, name in _VOLATILE:
            output = re.sub(pattern, name, output)
        # A hash map prints its entries in an order of its own.
        output = re.sub(r"roperties(=|: +){(.*?)}", lambda found: _sorted_entries(found[1], found[2]), output)
        lines = [re.sub(r"\s+", " ", line).strip() for line in output.splitlines()]
        return [line for line in lines if line and not re.match(r"at \S+\(|\.\.\. \d+ more", line)]

    def _answer(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.flush()
            errors = Path(self._errors.name).read_text()[-2000:]
            raise RuntimeError(f"{what}: the JVM ended without an answer on {self._cluster.implementation}\n{errors}")
        return json.loads(line)


def _sorted_entries(separator: str, entries: str) -> str:
    return f"roperties{separator}{{{', '.join(sorted(entries.split(', ')))}}}"
