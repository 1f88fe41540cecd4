"""Twinlog's name server and broker as processes, with the interface of `JavaRocketmq`.

with Twinlog().name_server(tmp_path / "ns") as names, Twinlog().broker(tmp_path / "b", names.address) as broker:
    ...
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.java_rocketmq import Broker, NameServer, broker_conf, write_conf
from tests.interop.processes import free_port

TWINLOG = [sys.executable, "-m", "twinlog.cli.main"]


class Twinlog:
    """The servers of this checkout."""

    name = "twinlog"

    def __init__(self, *, before: Sequence[str] = (), env: Mapping[str, str] = {}, host: str = "127.0.0.1") -> None:
        """`before` begins every command line, e.g. with a network namespace, in which it has the address `host`."""
        self._command, self._env, self._host = [*before, *TWINLOG], env, host

    def __repr__(self) -> str:
        return self.name

    def name_server(self, home: Path, *, port: int = 0) -> NameServer:
        port = port or free_port()
        keys = {"listenPort": str(port), "kvConfigPath": str(home / "kvConfig.json")}
        conf = write_conf(home / "namesrv.conf", keys)
        command = [*self._command, "namesrv", "-c", str(conf)]
        server = NameServer(command, home=home, port=port, ready="ready", env=self._env, host=self._host)
        return server.wait_ready()

    def broker(self, home: Path, name_server: str, *, port: int = 0, registered: bool = True, **conf: str) -> Broker:
        """Start a broker on `home`/store, wait until it is ready and `registered`; extra keys go to its broker.conf."""
        keys = broker_conf(home, name_server, port, {"brokerIP1": self._host, "brokerIP2": self._host} | conf)
        file = write_conf(home / "broker.conf", keys)
        command, port = [*self._command, "broker", "-c", str(file)], int(keys["listenPort"])
        broker = Broker(command, home=home, port=port, ready="ready", env=self._env, host=self._host)
        broker.store, broker.conf = Path(keys["storePathRootDir"]), keys
        broker.wait_ready()
        return broker.wait_registered(name_server) if registered else broker
