"""A name server and a broker in one process, for development, demonstrations and tests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.addresses import address_text
from twinlog.broker.broker import Broker
from twinlog.broker.task_errors import single_error
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlog.telemetry.metrics import Metrics

log = get_logger(__name__)
MIB = 1024 * 1024
# Small files: the first segment is allocated before the first send, and a laptop should not lose a gigabyte to it.
DEV_SETTINGS = {
    "brokerName": "broker-dev",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 * MIB),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enablePropertyFilter": "true",
}


class DevService:
    """Runs both until cancelled; the broker is registered when `on_ready` is called."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        namesrv_port: int = 0,
        settings: Mapping[str, str] | None = None,
        disk_ratio: Callable[[], float] | None = None,
        metrics: Metrics | None = None,
        on_ready: Callable[[DevService], None] | None = None,
    ) -> None:
        """`disk_ratio`: how full the disk is, if it is not to be asked."""
        self._metrics, self._disk_ratio = metrics, disk_ratio
        self._directory = directory
        self._port = port
        self._namesrv_port = namesrv_port
        self._settings = dict(settings or {})
        self._on_ready = on_ready
        self._name_server: NameServerService | None = None
        self.broker: Broker | None = None

    @property
    def namesrv_address(self) -> str:
        return address_text("127.0.0.1", self._name_server.port) if self._name_server is not None else ""

    @property
    def broker_address(self) -> str:
        return self.broker.address if self.broker is not None else ""

    async def run(self) -> None:
        listening = asyncio.Event()
        overrides = {
            "listenPort": str(self._namesrv_port),
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(self._directory / "namesrv" / "kvConfig.json"),
            "configStorePath": str(self._directory / "namesrv" / "namesrv.properties"),
        }
        conf = load_nameserver_conf(None, overrides=overrides)
        self._name_server = NameServerService(conf, metrics=self._metrics, on_ready=lambda _: listening.set())
        with single_error():
            await self._serve(listening)

    async def _serve(self, listening: asyncio.Event) -> None:
        assert self._name_server is not None
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._name_server.run(), name="name server")
            await listening.wait()
            try:
                await self._run_broker()
            finally:
                serving.cancel()

    async def _run_broker(self) -> None:
        overrides = {
            **DEV_SETTINGS,
            "listenPort": str(self._port),
            "storePathRootDir": str(self._directory / "store"),
            **self._settings,
            "namesrvAddr": self.namesrv_address,
        }
        conf = load_broker_conf(text="", overrides=overrides, environment={})
        for warning in conf.warnings:
            log.warning(warning.message)
        self.broker = Broker(
            dataclasses.replace(conf, path=None),
            disk_ratio=self._disk_ratio,
            metrics=self._metrics,
            on_ready=self._broker_ready,
        )
        await self.broker.run()

    def _broker_ready(self, broker: Broker) -> None:
        if self._on_ready is not None:
            self._on_ready(self)
