"""Twinlog's name server and broker as processes, with the interface of `JavaRocketmq`.

with Twinlog().name_server(tmp_path / "ns") as names, Twinlog().broker(tmp_path / "b", names.address) as broker:
    ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.java_rocketmq import Broker, NameServer, broker_conf, write_conf
from tests.interop.processes import free_port

TWINLOG = [sys.executable, "-m", "twinlog.cli.main"]


class Twinlog:
    """The servers of this checkout."""

    name = "twinlog"

    def __repr__(self) -> str:
        return self.name

    def name_server(self, home: Path, *, port: int = 0) -> NameServer:
        port = port or free_port()
        keys = {"listenPort": str(port), "kvConfigPath": str(home / "kvConfig.json")}
        conf = write_conf(home / "namesrv.conf", keys)
        command = [*TWINLOG, "namesrv", "-c", str(conf)]
        return NameServer(command, home=home, port=port, ready="ready").wait_ready()

    def broker(self, home: Path, name_server: str, *, port: int = 0, registered: bool = True, **conf: str) -> Broker:
        """Start a broker on `home`/store, wait until it is ready and `registered`; extra keys go to its broker.conf."""
        keys = broker_conf(home, name_server, port, conf)
        file = write_conf(home / "broker.conf", keys)
        broker = Broker([*TWINLOG, "broker", "-c", str(file)], home=home, port=int(keys["listenPort"]), ready="ready")
        broker.store, broker.conf = Path(keys["storePathRootDir"]), keys
        broker.wait_ready()
        return broker.wait_registered(name_server) if registered else broker
