"""Clusters that tests share, and what the real Java client saw when it ran scenarios against them."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.toolchain import VERSIONS
from tests.interop.twinlog_servers import Twinlog


class Implementation(Protocol):
    """Anything that can start a name server and a broker."""

    name: str

    def name_server(self, home: Path, *, port: int = 0) -> NameServer: ...

    def broker(
        self, home: Path, name_server: str, *, port: int = 0, registered: bool = True, **conf: str
    ) -> Broker: ...


@dataclass(frozen=True)
class Cluster:
    """A name server and one broker of the same implementation."""

    implementation: Implementation
    names: NameServer
    broker: Broker

    @property
    def is_java(self) -> bool:
        return isinstance(self.implementation, JavaRocketmq)


def implementation(name: str) -> Implementation:
    return Twinlog() if name == "twinlog" else JavaRocketmq(name.removeprefix("java-"))


def server_names() -> list[str]:
    """The servers under test: ours, and a real one that shows that the tests themselves are right.

    TWINLOG_INTEROP_SERVERS chooses others, e.g. `twinlog` alone or `java-4.9.7,java-5.5.0`.
    """
    chosen = os.environ.get("TWINLOG_INTEROP_SERVERS", f"twinlog,java-{VERSIONS[0]}")
    return [name.strip() for name in chosen.split(",") if name.strip()]


_CONF_OF_USES = {"python-client": {"recallMessageEnable": "true", "traceTopicEnable": "true"}}


class Clusters:
    """Starts each cluster once, and kills them all when it closes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running: dict[str, Cluster] = {}
        self._stack = contextlib.ExitStack()

    def get(self, name: str, *, use: str = "shared") -> Cluster:
        """The cluster of an implementation; another `use` means another cluster of the same."""
        key = f"{name}-{use}"
        if key not in self._running:
            maker = implementation(name)
            names = self._stack.enter_context(maker.name_server(self._home / key / "namesrv"))
            # Java: a half message whose producer is gone keeps a core busy until it is given up.
            conf = {"transactionCheckMax": "3", "enabledAppendPropCRC": "true"}  # the latter is our default
            conf |= _CONF_OF_USES.get(use, {})
            broker = self._stack.enter_context(maker.broker(self._home / key / "broker", names.address, **conf))
            self._running[key] = Cluster(maker, names, broker)
        return self._running[key]

    def close(self) -> None:
        self._stack.close()


def run_scenarios(
    cluster: Cluster, client: JavaRocketmq, scenarios: list[str], *, prefix: str = ""
) -> dict[str, dict[str, Any]]:
    """Each scenario's line of JSON: what it `saw`, or its `error`. One JVM runs them all.

    The prefix keeps the topics and groups of one run apart from those of another on the same cluster.
    """
    addresses = (cluster.names.address, cluster.broker.address)
    own = prefix or client.version.replace(".", "")
    # Java: a client sleeps 10 s and 10 s again when its offset is reset; the others run beside that one.
    names = sorted(scenarios, key=lambda name: (name != "reset_offset", name))
    printed = client.run("Scenarios", *addresses, own, *names, seconds_max=600)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {line["scenario"]: line for line in lines}
