"""A broker beside the one of the tests, which can be stopped and started again on its store."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from pathlib import Path

from tests.interop.processes import free_port

from twinlog.broker.broker import Broker
from twinlog.broker.dev_service import DEV_SETTINGS
from twinlog.broker.embedded import SMALL_FILES
from twinlog.client.sync import Admin
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.wire.bodies import TopicConfig


class SecondBroker:
    name = "broker-two"

    def __init__(self, name_server: str, directory: Path, **settings: str) -> None:
        own = {"brokerName": self.name, "listenPort": str(free_port()), "storePathRootDir": str(directory), **settings}
        self._overrides = {**DEV_SETTINGS, **SMALL_FILES, **own, "namesrvAddr": name_server}
        self._name_server = name_server
        self._thread: threading.Thread | None = None
        self.address = f"127.0.0.1:{own['listenPort']}"

    def start(self) -> SecondBroker:
        """Returns once it is registered."""
        ready = threading.Event()
        conf = dataclasses.replace(load_broker_conf(text="", overrides=self._overrides, environment={}), path=None)

        async def serve() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            await Broker(conf, on_ready=lambda _: ready.set()).run()

        def run() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(serve())

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(30)
        return self

    def stop(self) -> None:
        """Returns once its store is closed."""
        if self._thread is not None:
            assert self._task is not None
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
            self._thread = None

    def add_topic(self, name: str, queues: int = 1) -> None:
        with Admin(self._name_server) as admin:
            admin.save_topic(self.address, TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues))
